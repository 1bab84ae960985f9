"""The errors a user can meet. Each message is one line: the file, the place, the cause."""


class DetectorError(Exception):
    """Something the user can act on; entry points print it and exit 2, without a traceback."""


class TraceError(DetectorError):
    """A file that cannot be read as a trace."""


class ConfigError(DetectorError):
    """A setting that does not exist or does not fit."""


class ModelError(DetectorError):
    """A model file that is missing, or that does not match its card."""


class JudgeError(DetectorError):
    """A judge backend that cannot answer: no server, no model, no valid reply."""
