import socket
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "ask", ["create_connection(('192.0.2.1', 80), 1)", "getaddrinfo('a.b', 1)"]
)
def test_another_machine_is_refused_here_and_in_processes(ask: str) -> None:
    with pytest.raises(BaseException, match="a test asks"):
        exec(f"socket.{ask}", {"socket": socket})
    program = f"import socket\ntry:\n    socket.{ask}\nexcept Exception:\n    pass"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "a test asks" in done.stderr
