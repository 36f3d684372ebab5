"""Output appears whole or not at all."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from mv_st.errors import UserError
from mv_st.files import check_new_directory, whole_directory, whole_file


class TestWholeDirectory:
    def test_appears_at_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "model"
        with whole_directory(path) as directory:
            (directory / "sub").mkdir()
            (directory / "sub" / "private").write_text("x")
            (directory / "sub" / "private").chmod(0o600)
            assert not path.exists()
        assert (path / "sub" / "private").read_text() == "x"
        assert path.stat().st_mode & 0o777 == 0o755
        assert (path / "sub" / "private").stat().st_mode & 0o777 == 0o644
        assert list(path.parent.iterdir()) == [path]

    def test_failure_leaves_nothing(self, tmp_path: Path) -> None:
        with contextlib.suppress(RuntimeError), whole_directory(tmp_path / "model") as directory:
            (directory / "half").touch()
            raise RuntimeError
        assert list(tmp_path.iterdir()) == []

    def test_an_empty_directory_may_be_there(self, tmp_path: Path) -> None:
        (tmp_path / "model").mkdir()
        with whole_directory(tmp_path / "model") as directory:
            (directory / "file").touch()
        assert [path.name for path in (tmp_path / "model").iterdir()] == ["file"]

    def test_a_full_one_only_with_overwrite(self, tmp_path: Path) -> None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "old").touch()
        with pytest.raises(UserError, match="exists and is not empty"), whole_directory(tmp_path / "model"):
            pass
        with pytest.raises(RuntimeError), whole_directory(tmp_path / "model", overwrite=True):
            raise RuntimeError
        assert [path.name for path in (tmp_path / "model").iterdir()] == ["old"], "kept until the new one is whole"
        with whole_directory(tmp_path / "model", overwrite=True) as directory:
            (directory / "new").touch()
        assert [path.name for path in (tmp_path / "model").iterdir()] == ["new"]

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        (tmp_path / "disk" / "old").touch()
        (tmp_path / "model").symlink_to(tmp_path / "disk")
        with whole_directory(tmp_path / "model", overwrite=True) as directory:
            (directory / "new").touch()
        assert (tmp_path / "model").is_symlink()
        assert [path.name for path in (tmp_path / "disk").iterdir()] == ["new"]

    def test_relative_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with whole_directory("model") as directory:
            (directory / "file").touch()
        assert (tmp_path / "model" / "file").exists()

    def test_mistakes_are_explained(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match="is a file; give a directory"):
            check_new_directory(tmp_path / "file")
        with pytest.raises(UserError, match="cannot create"):
            check_new_directory(tmp_path / "file" / "sub" / "model")


class TestWholeFile:
    def test_appears_at_the_end_with_its_ending(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "vectors.npy"
        with whole_file(path) as temporary:
            assert temporary.suffix == ".npy"
            temporary.write_bytes(b"x")
            assert not path.exists()
        assert path.read_bytes() == b"x"
        assert path.stat().st_mode & 0o777 == 0o644
        assert list(path.parent.iterdir()) == [path]

    def test_failure_keeps_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "vectors.npy"
        path.write_bytes(b"old")
        with contextlib.suppress(RuntimeError), whole_file(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_mistakes_are_explained_before_the_work(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for path, message in ((tmp_path, "is a directory"), (tmp_path / "file" / "x.npy", "cannot write")):
            with pytest.raises(UserError, match=message), whole_file(path):
                pytest.fail("reached the work")
