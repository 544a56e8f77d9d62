"""S3-compatible store for tests: moto's server, real HTTP on loopback, with a log of its requests.

    with ObjectStore() as store:
        Mirror(store.address("data"), folder).push()
        assert store.requests[-1] == ("PUT", "data/dataset.json")

While it runs, the environment holds a user's settings: keys, region, endpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3 import s3_backends
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from s3fs import S3FileSystem
from werkzeug.serving import make_server

BUCKET = "bucket"
SECRET = "a-very-secret-key-0123456789"


class Quiet(MotoRequestHandler):
    """Request handler without log output."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def _nothing(request: tuple[str, str]) -> None:
    pass


@dataclass
class ObjectStore:
    """Store with one bucket, empty at first."""

    seen: Callable[[tuple[str, str]], None] = _nothing
    """Callback after each request with its method and key, one call at a time, before the client has its answer."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and key of each request, in the order of completion."""

    def __enter__(self) -> Self:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._turn = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self._environment = pytest.MonkeyPatch()
        for name, value in self.environment.items():
            self._environment.setenv(name, value)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            self._environment.delenv(name, raising=False)
        self.clear()
        S3FileSystem.clear_instance_cache()  # cached file systems have another endpoint
        return self

    def __exit__(self, *_: object) -> None:
        self._environment.undo()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._backend.reset()
        S3FileSystem.clear_instance_cache()

    def clear(self) -> None:
        """Empty the bucket, remove the callback and clear the request log."""
        self._backend.reset()
        self._backend.create_bucket(BUCKET, "us-east-1")
        self.requests.clear()
        self.seen = _nothing

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that a process needs to find the store."""
        return {
            "AWS_ACCESS_KEY_ID": "a-key-id",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def address(self, name: str) -> str:
        """Address of a folder or object in the bucket."""
        return f"s3://{BUCKET}/{name}"

    def contents(self, under: str = "") -> dict[str, bytes]:
        """Current objects with this key prefix, read inside the server without a client of ours."""
        keys = self._backend.buckets[BUCKET].keys
        return {name.removeprefix(under): key.value for name, key in list(keys.items()) if name.startswith(under)}

    def put(self, key: str, content: bytes) -> None:
        """Put an object of another client under any key."""
        self._backend.put_object(BUCKET, key, content)

    def remove(self, key: str) -> None:
        """Remove an object as another client."""
        self._backend.delete_object(BUCKET, key)

    def written(self) -> list[tuple[str, str]]:
        """Requests that changed the bucket so far: PUT and DELETE, with their keys."""
        return [request for request in self.requests if request[0] in ("PUT", "DELETE")]

    @property
    def _backend(self) -> Any:
        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._turn:
            answer = list(self._application(environ, start_response))
            request = (environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix(f"/{BUCKET}").lstrip("/"))
            self.requests.append(request)
            self.seen(request)
        return answer
