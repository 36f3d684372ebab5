"""How modules get onto the disk and back: a configuration that builds the module, and weights as safetensors."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from sentence_transformers.base.modules import Module
from torch import Tensor

from ..errors import UserError

if TYPE_CHECKING:
    from typing_extensions import Self


class ModuleWithWeights(Module):
    """A module that its configuration builds and that its weights are then filled into."""

    _saved_in_half = False

    @torch.no_grad()
    def save_in_half(self) -> None:
        """From now on, save weights in half precision; here they are rounded, so that saving changes nothing."""
        self._saved_in_half = True
        for tensor in self.state_dict().values():
            tensor.copy_(tensor.half())

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write configuration and weights."""
        weights = self.state_dict()
        if self._saved_in_half:
            weights = {name: tensor.half() for name, tensor in weights.items()}
        save_config_and_weights(self, output_path, safe_serialization, weights)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:  # type: ignore[override]
        """Load configuration and weights; the host's `load` stops at the former."""
        hub = hub_arguments(kwargs) | {"subfolder": subfolder}
        module = cls(**cls.load_config(model_name_or_path, **hub))
        return cls.load_torch_weights(model_name_or_path, **hub, model=module)


def save_config_and_weights(
    module: Module, output_path: str, safe_serialization: bool = True, weights: dict[str, Tensor] | None = None
) -> None:
    """Write the configuration of a module and its weights, its state unless given, as `model.safetensors`."""
    if not safe_serialization:
        raise UserError("mv_st models are saved as safetensors, never as pickle; leave safe_serialization out")
    module.save_config(output_path)
    file = os.path.join(output_path, "model.safetensors")
    weights = module.state_dict() if weights is None else weights
    # Not the host's save_torch_weights: it refuses a GRU from a GPU, where all its weights lie in one block of memory.
    save_file({name: tensor.cpu().contiguous() for name, tensor in weights.items()}, file)
    # safetensors makes files that only their owner can read.
    shutil.copymode(os.path.join(output_path, module.config_file_name), file)


def hub_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Those of the host's loading arguments that say where files are."""
    names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
    return {name: kwargs[name] for name in names if name in kwargs}
