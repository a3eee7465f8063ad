"""The table of releases against the published bindings of each."""

from types import SimpleNamespace

import pytest

from deploy.engines.releases import RELEASES, release_of, version_of
from tests.deploy.engines.stand_in import API


@pytest.mark.parametrize("version", API)
def test_a_row_says_what_the_bindings_have(version):
    api, release = API[version], release_of(SimpleNamespace(__name__="tensorrt", __version__=version))
    flags, creation = api["BuilderFlag"], api["NetworkDefinitionCreationFlag"]
    assert release.weakly_typed == ("FP16" in flags and "INT8" in flags and "OBEY_PRECISION_CONSTRAINTS" in flags)
    assert release.weakly_typed == ("precision" in api["ILayer"] and "set_output_type" in api["ILayer"])
    assert release.strongly_typed == ("STRONGLY_TYPED" in creation)
    assert release.progress == ("IProgressMonitor" in api) == ("progress_monitor" in api["IBuilderConfig"])
    assert release.node_names == ("node_name" in api["ParserError"])
    # From 10 on the flag is there and ignored; before, a network without it has an implicit batch.
    assert not release.explicit_batch or "EXPLICIT_BATCH" in creation


def test_every_row_is_recorded_and_they_are_in_order():
    recorded = {release_of(SimpleNamespace(__name__="tensorrt", __version__=version)) for version in API}
    assert recorded == set(RELEASES) and list(RELEASES) == sorted(RELEASES, key=lambda release: release.first)


@pytest.mark.parametrize(
    ("version", "first"),
    [("8.6.1.6", (8, 6)), ("9.3.0", (8, 6)), ("10.3.0.30", (10, 0)), ("10.12.0", (10, 12)), ("12.0", (11, 0))],
)
def test_the_row_of_a_version(version, first):
    assert release_of(SimpleNamespace(__name__="tensorrt", __version__=version)).first == first


def test_too_old_and_no_version():
    with pytest.raises(ValueError, match="TensorRT 8.5.2 is too old; expected 8.6.*JetPack 6"):
        release_of(SimpleNamespace(__name__="tensorrt", __version__="8.5.2"))
    with pytest.raises(ValueError, match="expected something like 10.3.0"):
        version_of("unknown")


def test_tensorrt_for_rtx_is_asked_like_the_newest():
    assert release_of(SimpleNamespace(__name__="tensorrt_rtx", __version__="1.7.1")) is RELEASES[-1]
