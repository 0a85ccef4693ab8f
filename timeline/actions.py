"""Hudi's names of actions and operations: what an instant is called, and what its commit says it did."""

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

#: What puts rows on a table, or takes them away.
WRITE_ACTIONS = (COMMIT, DELTA_COMMIT, REPLACE_COMMIT)

#: What such an instant may be called before it has completed, besides.
PENDING_WRITE_ACTIONS = (*WRITE_ACTIONS, COMPACTION, LOG_COMPACTION, CLUSTERING)

#: What a pending action is called once it has completed.
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

#: What a completed write may have been called while it was pending, if not the same.
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

#: Plans that stay until somebody carries them out, whoever died on the way.
PLANNED_SERVICES = (COMPACTION, LOG_COMPACTION, CLUSTERING, CLEAN)
