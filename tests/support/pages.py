"""A web server of a test's own, whose pages a request handler gives."""

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def served_pages(handler):
    """Serve pages below `root`; `asked` and the event `over` are for the handler's use."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.asked, server.over = [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.root = f"http://127.0.0.1:{server.server_port}/in/"
    yield server
    server.over.set()
    server.shutdown()
    thread.join(10)
    server.server_close()
