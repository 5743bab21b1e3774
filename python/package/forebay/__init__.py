"""Client of Forebay, the buffer between a detector and permanent storage.

``Client`` has fragments and events, ``Files`` has names and bytes, and ``forebay.fs`` has the files for whatever opens URLs by fsspec
(``uproot.open("forebay://host:7420/run17/file.root")``). Calls that wait let other threads run; threads that are to work at the same time have a client each.

    >>> import forebay
    >>> client = forebay.Client("127.0.0.1:7420")
    >>> client.put(1, 7, 0x100, 1, b"the bytes of the fragment")
    >>> client.flush()
    >>> [result.acknowledged for result in client.take_results()]
    [True]
    >>> bytes(client.get(1, 7, 0x100))
    b'the bytes of the fragment'
"""

from ._forebay import (
    AcceptedEvent,
    AcceptedPage,
    Client,
    Event,
    Files,
    Fragment,
    Lease,
    LeasedEvent,
    Payload,
    PutResult,
    Reader,
    Status,
    Subscription,
    Writer,
    __version__,
)
from .errors import (
    Conflict,
    Error,
    Exists,
    FileError,
    IsDirectory,
    NoAnswer,
    NobodyListens,
    NoSpace,
    NoSums,
    NotDirectory,
    NotFound,
    ReadError,
    Sealed,
    ServerError,
)

__all__ = [
    "AcceptedEvent",
    "AcceptedPage",
    "Client",
    "Conflict",
    "Error",
    "Event",
    "Exists",
    "FileError",
    "Files",
    "Fragment",
    "IsDirectory",
    "Lease",
    "LeasedEvent",
    "NoAnswer",
    "NoSpace",
    "NoSums",
    "NobodyListens",
    "NotDirectory",
    "NotFound",
    "Payload",
    "PutResult",
    "ReadError",
    "Reader",
    "Sealed",
    "ServerError",
    "Status",
    "Subscription",
    "Writer",
    "__version__",
]
