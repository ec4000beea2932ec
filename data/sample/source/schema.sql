CREATE TABLE schema_version (
    version    INTEGER PRIMARY KEY,
    applied_at TEXT NOT NULL DEFAULT (datetime('now'))
);

CREATE TABLE memories (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id         TEXT NOT NULL,
    project_id       TEXT NOT NULL DEFAULT '',
    msg_id           TEXT NOT NULL DEFAULT '',
    content          TEXT NOT NULL,
    source           TEXT NOT NULL DEFAULT '{}',
    timestamp        TEXT NOT NULL,
    metadata         TEXT NOT NULL DEFAULT '{}',
    embedding        BLOB,
    channel          TEXT NOT NULL DEFAULT '',
    recall_count     INTEGER NOT NULL DEFAULT 0,
    last_recalled_at TEXT,
    locked           INTEGER NOT NULL DEFAULT 0,
    embedding_model  TEXT NOT NULL DEFAULT '',
    created_at       TEXT NOT NULL DEFAULT (datetime('now'))
);

CREATE TABLE episodes (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id        TEXT NOT NULL,
    project_id      TEXT NOT NULL DEFAULT '',
    summary         TEXT NOT NULL,
    keywords        TEXT NOT NULL DEFAULT '',
    embedding       BLOB,
    start_time      TEXT,
    end_time        TEXT,
    resolved        INTEGER NOT NULL DEFAULT 0,
    channel         TEXT NOT NULL DEFAULT '',
    embedding_model TEXT NOT NULL DEFAULT '',
    created_at      TEXT NOT NULL DEFAULT (datetime('now'))
);

CREATE TABLE record_blocks (
    parent_kind     TEXT    NOT NULL,
    parent_id       INTEGER NOT NULL,
    block_index     INTEGER NOT NULL,
    agent_id        TEXT    NOT NULL,
    project_id      TEXT    NOT NULL DEFAULT '',
    channel         TEXT    NOT NULL DEFAULT '',
    start_char      INTEGER NOT NULL,
    end_char        INTEGER NOT NULL,
    forced_boundary INTEGER NOT NULL DEFAULT 0,
    embedding_bits  BLOB,
    embedding_model TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (parent_kind, parent_id, block_index)
);

CREATE TABLE record_block_vectors (
    parent_kind  TEXT    NOT NULL,
    parent_id    INTEGER NOT NULL,
    block_index  INTEGER NOT NULL,
    embedding_i8 BLOB    NOT NULL,
    PRIMARY KEY (parent_kind, parent_id, block_index)
) WITHOUT ROWID;

CREATE TABLE record_nodes (
    parent_kind     TEXT    NOT NULL,
    parent_id       INTEGER NOT NULL,
    node_index      INTEGER NOT NULL,
    start_char      INTEGER NOT NULL,
    end_char        INTEGER NOT NULL,
    token_count     INTEGER NOT NULL,
    window          INTEGER NOT NULL,
    embedding       BLOB,
    embedding_model TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (parent_kind, parent_id, node_index)
);

CREATE TABLE entities (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id    TEXT NOT NULL,
    project_id  TEXT NOT NULL DEFAULT '',
    channel     TEXT NOT NULL DEFAULT '',
    name        TEXT NOT NULL,
    normalized  TEXT NOT NULL,
    declared_by TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    UNIQUE (agent_id, project_id, channel, normalized)
);

CREATE TABLE entity_aliases (
    entity_id  INTEGER NOT NULL,
    alias      TEXT    NOT NULL,
    normalized TEXT    NOT NULL,
    PRIMARY KEY (entity_id, normalized)
);
