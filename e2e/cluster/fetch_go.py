"""fetch_go.py VERSION SHA256 FOLDER: a Go toolchain out of the module proxy.

For machines whose own Go is missing or too old to fetch one itself. The zip is
checked against the digest before anything is unpacked.
"""

import hashlib
import io
import os
import pathlib
import shutil
import sys
import urllib.request
import zipfile

BYTES_MAX = 256 << 20


def main():
    version, digest, folder = sys.argv[1:]
    proxy = os.environ.get("GOPROXY", "").split(",")[0]
    if not proxy.startswith("http"):
        proxy = "https://proxy.golang.org"
    url = f"{proxy}/golang.org/toolchain/@v/{version}.zip"
    with urllib.request.urlopen(url, timeout=60) as answer:
        data = answer.read(BYTES_MAX)
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        sys.exit(f"{url}: SHA-256 is {found}, expected {digest}")

    staging = pathlib.Path(folder + ".new")
    shutil.rmtree(staging, ignore_errors=True)
    prefix = f"golang.org/toolchain@{version}/"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            path = staging / entry.filename.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(entry))
            # Module zips carry no modes.
            if "/bin/" in entry.filename or "/pkg/tool/" in entry.filename:
                path.chmod(0o755)
    staging.rename(folder)


if __name__ == "__main__":
    main()
