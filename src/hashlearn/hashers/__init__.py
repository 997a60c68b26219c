"""The methods: one file each, one contract (:class:`~hashlearn.hashers.base.Hasher`)."""

from hashlearn.hashers._model_file import ModelMetadata
from hashlearn.hashers._model_file import model_key as model_key
from hashlearn.hashers.ba import BA
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.bre import BRE
from hashlearn.hashers.decoder_hash import DecoderHash
from hashlearn.hashers.dh import DH
from hashlearn.hashers.itq import ITQ
from hashlearn.hashers.itq_cca import ITQCCA
from hashlearn.hashers.kmh import KMH
from hashlearn.hashers.ksh import KSH
from hashlearn.hashers.label_hash import LabelHash
from hashlearn.hashers.lsh import LSH
from hashlearn.hashers.neighbor_hash import NeighborHash
from hashlearn.hashers.pca_sign import PCASign
from hashlearn.hashers.sdh import SDH
from hashlearn.hashers.sdh_dnn import SDHDNN
from hashlearn.hashers.sh import SH
from hashlearn.hashers.sign import Sign
from hashlearn.hashers.sph import SPH
from hashlearn.hashers.udh_dnn import UDHDNN

#: Every method by its name. A class listed here is on the command line and in the contract tests.
METHODS: dict[str, type[Hasher]] = {
    method.name: method
    for method in (
        LSH, Sign, PCASign, SH, ITQ, SPH, KMH, BA, DH, SDH, ITQCCA, KSH, BRE, UDHDNN, SDHDNN,
        NeighborHash, LabelHash, DecoderHash,
    )
}  # fmt: skip

__all__ = ["METHODS", "Hasher", "ModelMetadata", *(method.__name__ for method in METHODS.values())]
