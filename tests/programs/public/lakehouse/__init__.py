"""A package that a program brings along in a zip file."""

from .layers import BronzeJob, GoldJob, SilverJob

JOBS = {cls.__name__: cls for cls in (BronzeJob, SilverJob, GoldJob)}
