"""Small wheels made by hand, and lock files that find nothing but them."""

import hashlib
import zipfile


def make_wheel(folder, name, version, text):
    """A wheel of one package whose `__init__.py` is `text`; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, content)
    return path


def lock_file(path, wheel):
    """A lock file for this wheel alone, without any index."""
    name, version, *_ = wheel.name.split("-")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    path.write_text(
        f"--no-index\n--find-links {wheel.parent}\n{name}=={version} --hash=sha256:{digest}\n"
    )
    return path
