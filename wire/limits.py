"""Ceilings of the contract. They are part of the protocol and cannot be set.

What an operator can set lives in the deploy record (`wire/deployment.py`); what a process can set
lives in `service/settings.py`.
"""

CONTRACT_VERSION = 1

# Names end up in keys, in paths and in logs, hence one narrow alphabet for all of them.
NAME_BYTES_MAX = 128
# Every receipt carries a worker's name, hence a shorter bound.
WORKER_NAME_BYTES_MAX = 64

# A request entry. 64 fields leave room for extensions; the 10,000-field entry is an attack.
ENTRY_FIELDS_MAX = 64
META_BYTES_MAX = 1024
PARAMETERS_BYTES_MAX = 4096
OUTPUT_NAMES_MAX = 64
TENSORS_MAX = 64
WARNINGS_MAX = 8
REFERENCE_BYTES_MAX = 2048
INPUT_PREFIXES_MAX = 32

# Bodies. Redis itself would take 512 MB; every byte is copied three times on its way.
INPUTS_BYTES_MAX = 16 * 1024 * 1024
# All fields of an entry together. A larger one is refused without being read.
ENTRY_BYTES_MAX = 17 * 1024 * 1024
OUTPUTS_BYTES_MAX = 64 * 1024 * 1024
INLINE_BYTES_DEFAULT = 64 * 1024
COPY_IN_SERVER_BYTES = 16 * 1024
ROWS_MAX = 2048
NESTING_MAX = 32
ELEMENTS_MAX = 4_000_000
# In one body, beside numbers: an image of 224 × 224 as nested lists has 50,401 of them.
LISTS_MAX = 65_536
TEXTS_MAX = 150_000

# Times.
TIMEOUT_MS_DEFAULT = 60_000
TIMEOUT_MS_MAX = 3_600_000
RESULT_TTL_MS_DEFAULT = 300_000
RESULT_TTL_MS_MAX = 86_400_000
DELAY_MS_MAX = 86_400_000
# An accepted request is over by then.
OPEN_MS_MAX = DELAY_MS_MAX + TIMEOUT_MS_MAX
RETRIES_MAX = 10
REFUSAL_TTL_MS = 30_000
# A client or proxy may send an entry again this long after the first try.
RESEND_WINDOW_MS = 10_000
# A blob outlives the reference to it by so much.
BLOB_MARGIN_MS = 10_000

# One call of a script. Long calls block every other client of the server.
ACCEPT_ITEMS_MAX = 64
FINISH_ITEMS_MAX = 64
FINISH_BYTES_MAX = 256 * 1024

# A notification carries replies up to this size; for a larger one it carries the id.
NOTIFY_BYTES_MAX = 16 * 1024
NOTIFY_PREFIX_LENGTH = 8

RECEIPT_BYTES_MAX = 300
ERROR_MESSAGE_CHARACTERS_MAX = 500
# An error names this many rows at fault; a request may have `ROWS_MAX` of them.
ERROR_ROWS_MAX = 32
JOURNAL_LINES_MAX = 100_000
# Requests that were given up, with their inputs; the oldest go when these are reached.
DEAD_BYTES_MAX = 64 * 1024 * 1024
DEAD_LETTERS_MAX = 10_000
