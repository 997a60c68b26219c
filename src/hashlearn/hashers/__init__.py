"""The methods: one file each, one contract (:class:`~hashlearn.hashers.base.Hasher`)."""

from hashlearn.hashers.base import Hasher
from hashlearn.hashers.dh import DH
from hashlearn.hashers.itq import ITQ
from hashlearn.hashers.lsh import LSH
from hashlearn.hashers.sdh_dnn import SDHDNN
from hashlearn.hashers.udh_dnn import UDHDNN

#: Every method by its name. A class listed here is on the command line and in the contract tests.
METHODS: dict[str, type[Hasher]] = {method.name: method for method in (LSH, ITQ, DH, UDHDNN, SDHDNN)}

__all__ = ["DH", "ITQ", "LSH", "METHODS", "SDHDNN", "UDHDNN", "Hasher"]
