"""Starts one of the clusters beside it on this machine: a name server and all its brokers; Ctrl-C ends them.

python examples/clusters/start.py 2m-noslave|2m-2s-async|2m-2s-sync [FOLDER [PORT [KEY=VALUE ...]]]

Stores and logs are in FOLDER (./cluster), the name server is at PORT (9876), brokers from PORT + 1035 (10911) on, ten
apart. Each KEY=VALUE is set for all brokers. On machines of their own the files are used as they are, with -c.
"""

import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def commands(configuration: str, folder: Path, port: int, settings: list[str]) -> dict[str, list[str]]:
    """The command of each server, by its name."""
    found = {"namesrv": ["namesrv", "--set", f"listenPort={port}", "--set", f"kvConfigPath={folder}/kv.json"]}
    for number, file in enumerate(sorted((HERE / configuration).glob("*.properties"), key=lambda path: path.stem)):
        own = [f"listenPort={port + 1035 + 10 * number}", f"storePathRootDir={folder / file.stem}", *settings]
        sets = [word for setting in own for word in ("--set", setting)]
        found[file.stem] = ["broker", "-c", str(file), "-n", f"127.0.0.1:{port}", *sets]
    return found


def main(configuration: str, folder: Path, port: int, settings: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    running: list[subprocess.Popen[str]] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name, words in commands(configuration, folder.resolve(), port, settings).items():
            command = [sys.executable, "-m", "sparrowmq", *words, "--log-file", str(folder / f"{name}.log")]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            said = running[-1].stdout.readline() if running[-1].stdout else ""
            print(f"{name}: {said.strip() or f'it did not start; see {folder / name}.log'}", flush=True)
            if not said:
                return 1
        print(f"{configuration} is up: NAMESRV_ADDR=127.0.0.1:{port}; Ctrl-C ends it", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        for child in reversed(running):
            child.terminate()
        for child in running:
            child.wait()
    return 0


if __name__ == "__main__":
    names = sorted(path.name for path in HERE.iterdir() if path.is_dir() and list(path.glob("*.properties")))
    given = [*sys.argv[1:], *["", "cluster", "9876"][len(sys.argv) - 1 :]]
    if given[0] not in names:
        sys.exit(f"which cluster? {', '.join(names)}; as in: python {sys.argv[0]} {names[0]}")
    sys.exit(main(given[0], Path(given[1]), int(given[2]), given[3:]))
