"""The errors of localcluster itself, not of the pods, and the exit status of each.

LocalClusterError
├── OptionError     64  a flag or a volume that does not match the manifest
├── ManifestError   65  not YAML, not a Job, or a Job that the API server would reject
├── MissingError    66  a file that does not exist
├── WaitError       69  the deadline of a waiting call or of --timeout passed
├── InUseError      75  another localcluster runs this Job with this directory
└── HostError       78  this machine lacks a requirement, for example addresses of 127.0.0.0/8
"""

from __future__ import annotations


class LocalClusterError(Exception):
    """Base of all errors of this package; its text is one line for the user."""

    exit_code = 70


class OptionError(LocalClusterError):
    """A flag has the wrong form, or names something that is not in the manifest."""

    exit_code = 64


class ManifestError(LocalClusterError):
    """The manifest is not a Job, or has values that the API server or this package rejects."""

    exit_code = 65


class MissingError(LocalClusterError):
    """A required file or program does not exist."""

    exit_code = 66


class WaitError(LocalClusterError):
    """A deadline passed, or the Job ended, before the awaited event."""

    exit_code = 69


class InUseError(LocalClusterError):
    """Another localcluster runs this Job with this directory."""

    exit_code = 75


class HostError(LocalClusterError):
    """This machine cannot run a localcluster."""

    exit_code = 78
