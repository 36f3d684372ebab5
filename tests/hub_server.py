"""A small Hugging Face Hub on the loopback interface: as much of its protocol as the real client needs.

Repositories of models with commits, public and private; regular files inside the commit, large ones over LFS.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"


@dataclass
class Repository:
    """Files by path, and one commit id per change."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def commit(self, message: str) -> str:
        content = repr((len(self.commits), sorted(self.files.items())))
        self.commits.append(hashlib.sha1(content.encode()).hexdigest())
        self.messages.append(message)
        return self.commits[-1]


class HubError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, code: str = "", **details: str) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.details = status, message, code, details


class Hub:
    """What the server knows.

    Args:
        users: Token -> user. A user may write to repositories under the own name only.
        large_files: Endings of the files that go over LFS.
    """

    def __init__(self, users: dict[str, str], large_files: tuple[str, ...] = ()) -> None:
        self.users = users
        self.large_files = large_files
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.url = ""

    def repository(self, name: str, user: str | None) -> Repository:
        found = self.repositories.get(name)
        if found is None or (found.private and name.split("/")[0] != user):
            # Whether a private repository exists is not told.
            raise HubError(401 if user is None else 404, "Repository not found", "RepoNotFound")
        return found

    def writable(self, name: str, user: str | None) -> Repository:
        found = self.repository(name, user)
        if name.split("/")[0] != user:
            raise HubError(403, f"You don't have the rights to write to {name}.")
        return found

    def create(self, body: Any, user: str | None) -> Any:
        owner = body.get("organization") or user
        if user is None or owner != user:
            raise HubError(
                401 if user is None else 403, f'You don\'t have the rights to create a model under "{owner}"'
            )
        name = f"{owner}/{body['name']}"
        if name in self.repositories:
            raise HubError(409, "You already created this model repo", url=f"{self.url}/{name}")
        self.add(name, private=body.get("visibility") == "private" or bool(body.get("private")))
        return {"url": f"{self.url}/{name}", "name": name, "id": name}

    def add(self, name: str, private: bool = False) -> Repository:
        """An empty repository."""
        self.repositories[name] = Repository(private)
        self.repositories[name].commit("initial commit")
        return self.repositories[name]

    def info(self, name: str, user: str | None) -> Any:
        found = self.repository(name, user)
        siblings = [{"rfilename": path} for path in sorted(found.files)]
        return {"id": name, "sha": found.commits[-1], "private": found.private, "siblings": siblings, "tags": []}

    def tree(self, name: str, user: str | None) -> Any:
        files = self.repository(name, user).files
        return [
            {"type": "file", "path": path, "size": len(content), "oid": git_hash(content)}
            for path, content in sorted(files.items())
        ]

    def preupload(self, name: str, body: Any, user: str | None) -> Any:
        files = self.writable(name, user).files

        def answer(path: str) -> dict[str, Any]:
            is_large = path.endswith(self.large_files) if self.large_files else False
            known = None if path not in files else sha256(files[path]) if is_large else git_hash(files[path])
            mode = "lfs" if is_large else "regular"
            return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": known}

        return {"files": [answer(file["path"]) for file in body["files"]]}

    def large_batch(self, name: str, body: Any, user: str | None) -> Any:
        self.writable(name, user)
        objects = [
            {"oid": item["oid"], "size": item["size"]}
            | ({} if item["oid"] in self.large else {"actions": {"upload": {"href": f"{self.url}/lfs/{item['oid']}"}}})
            for item in body["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    def commit(self, name: str, lines: list[Any], user: str | None) -> Any:
        found = self.writable(name, user)
        message = ""
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                message = value["summary"]
            elif line["key"] == "file":
                found.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                found.files[value["path"]] = self.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del found.files[value["path"]]
            else:
                raise HubError(400, f"unknown operation {line['key']}")
        sha = found.commit(message)
        return {"success": True, "commitUrl": f"{self.url}/{name}/commit/{sha}", "commitOid": sha}

    def file(self, name: str, path: str, user: str | None) -> tuple[bytes, dict[str, str]]:
        found = self.repository(name, user)
        if path not in found.files:
            raise HubError(404, "Entry not found", "EntryNotFound")
        content = found.files[path]
        headers = {"X-Repo-Commit": found.commits[-1], "ETag": f'"{git_hash(content)}"', "Accept-Ranges": "bytes"}
        return content, headers

    def answer(self, method: str, path: str, body: bytes, user: str | None) -> tuple[bytes, dict[str, str]]:
        def data() -> Any:
            return json.loads(body)

        def lines() -> list[Any]:
            return [json.loads(line) for line in body.splitlines() if line.strip()]

        def store(oid: str) -> Any:
            if sha256(body) != oid:
                raise HubError(400, "wrong checksum")
            self.large[oid] = body
            return {}

        routes: list[tuple[str, str, Any]] = [
            ("GET", r"/api/whoami-v2", lambda: {"name": user, "type": "user", "orgs": []}),
            ("POST", r"/api/repos/create", lambda: self.create(data(), user)),
            ("POST", r"/api/validate-yaml", lambda: validate_card(data()["content"])),
            ("POST", rf"/api/models/{REPO}/preupload/main", lambda repo: self.preupload(repo, data(), user)),
            ("POST", rf"/api/models/{REPO}/commit/main", lambda repo: self.commit(repo, lines(), user)),
            ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", lambda repo: self.large_batch(repo, data(), user)),
            ("PUT", r"/lfs/(?P<oid>\w+)", store),
            ("GET", rf"/api/models/{REPO}(/revision/\w+)?", lambda repo: self.info(repo, user)),
            ("GET", rf"/api/models/{REPO}/tree/\w+", lambda repo: self.tree(repo, user)),
            ("GET", rf"/{REPO}/resolve/\w+/(?P<path>.+)", lambda repo, path: self.file(repo, path, user)),
        ]
        for wanted, pattern, respond in routes:
            match = re.fullmatch(pattern, path)
            if match and wanted == ("GET" if method == "HEAD" else method):
                found = respond(**match.groupdict())
                if isinstance(found, tuple):
                    return found
                return json.dumps(found).encode(), {"Content-Type": "application/json"}
        raise HubError(404, f"this small server knows no {method} {path}")


def git_hash(content: bytes) -> str:
    """The id that git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def validate_card(card: str) -> Any:
    """Refuse a card whose metadata is no YAML mapping, as the Hub does."""
    match = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    metadata = yaml.safe_load(match[1]) if match else None
    errors = [] if isinstance(metadata, dict) else [{"message": "the card has no metadata"}]
    return {"errors": errors, "warnings": []}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            body = self._body()
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            try:
                content, headers = hub.answer(self.command, path, body, self._user())
                status = 200
            except HubError as error:
                status, content = error.status, json.dumps({"error": error.message} | error.details).encode()
                headers = {"X-Error-Code": error.code, "X-Error-Message": error.message}
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = _respond

        def _user(self) -> str | None:
            """Who asks; a token that nobody has is refused, no token is nobody."""
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            if token and token not in hub.users:
                raise HubError(401, "Invalid credentials in Authorization header")
            return hub.users.get(token)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: the tests read what programs print."""

    return Handler


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serve a hub on a free port; its address is in `hub.url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
