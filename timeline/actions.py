"""Hudi's names of actions (of an instant) and of operations (in its commit's metadata)."""

from __future__ import annotations

COMMIT = "commit"
DELTA_COMMIT = "deltacommit"
REPLACE_COMMIT = "replacecommit"
COMPACTION = "compaction"
LOG_COMPACTION = "logcompaction"
CLUSTERING = "clustering"
CLEAN = "clean"
ROLLBACK = "rollback"
RESTORE = "restore"
SAVEPOINT = "savepoint"
INDEXING = "indexing"

#: Actions that add rows to a table or remove them.
WRITE_ACTIONS = (COMMIT, DELTA_COMMIT, REPLACE_COMMIT)

#: The same, and the other actions under which such instants are pending.
PENDING_WRITE_ACTIONS = (*WRITE_ACTIONS, COMPACTION, LOG_COMPACTION, CLUSTERING)

#: The completed action of each pending one.
COMPLETED_ACTIONS = {
    COMMIT: COMMIT,
    DELTA_COMMIT: DELTA_COMMIT,
    COMPACTION: COMMIT,
    LOG_COMPACTION: DELTA_COMMIT,
    CLUSTERING: REPLACE_COMMIT,
    REPLACE_COMMIT: REPLACE_COMMIT,
    CLEAN: CLEAN,
    ROLLBACK: ROLLBACK,
    RESTORE: RESTORE,
    SAVEPOINT: SAVEPOINT,
    INDEXING: INDEXING,
}

#: The pending actions of a completed write other than its own.
PENDING_OF = {COMMIT: (COMPACTION,), DELTA_COMMIT: (LOG_COMPACTION,), REPLACE_COMMIT: (CLUSTERING,)}

# Operations of writes, as options name them; a commit's metadata has them in capitals.
UPSERT, INSERT, BULK_INSERT, DELETE = "upsert", "insert", "bulk_insert", "delete"
INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE = "insert_overwrite", "insert_overwrite_table"
DELETE_PARTITION = "delete_partition"
REPLACING_OPERATIONS = (INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE, DELETE_PARTITION)
WRITE_OPERATIONS = (UPSERT, INSERT, BULK_INSERT, DELETE, *REPLACING_OPERATIONS)

# Operations of table services, as a commit's metadata has them.
COMPACT, LOG_COMPACT, CLUSTER = "COMPACT", "LOG_COMPACT", "CLUSTER"
SERVICE_OPERATIONS = (COMPACT, LOG_COMPACT, CLUSTER)  # which change no row

#: Services whose commits only add a slice, and those whose commits replace file groups, by their pending action.
SERVICES_THAT_ADD_A_SLICE = {COMPACTION: COMPACT, LOG_COMPACTION: LOG_COMPACT}
SERVICES_THAT_REPLACE = {CLUSTERING: CLUSTER}
TABLE_SERVICES = frozenset({*SERVICES_THAT_ADD_A_SLICE, *SERVICES_THAT_REPLACE})

#: Plans that stay until they are carried out, even if executors die.
PLANNED_SERVICES = (COMPACTION, LOG_COMPACTION, CLUSTERING, CLEAN)
