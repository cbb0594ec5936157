/// The tables and the function by which instances share the work.
extension Schema {
  // A row is one run of one process; its number is never used again. Once an instance has `ended`, the others release what it
  // held. `name` and `version` are for operators.
  //
  // The remaining columns and `activity` are figures that each instance publishes, so that every instance can show the sums. An
  // instance writes only its own rows, so that one that hangs in a transaction delays no other. The rows of `activity` remain
  // when their instance is gone.
  static let instances = """
    CREATE TABLE instances (
      number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      lease_until bigint NOT NULL,
      ended boolean NOT NULL DEFAULT false,
      name bytea,
      version bytea,
      since bigint NOT NULL,
      workers int,
      cache_hits bigint NOT NULL DEFAULT 0,
      cache_revalidations bigint NOT NULL DEFAULT 0,
      cache_misses bigint NOT NULL DEFAULT 0,
      cache_memory bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);
    CREATE TABLE activity (
      step bigint NOT NULL,
      instance bigint NOT NULL,
      queued int NOT NULL,
      loading int NOT NULL,
      succeeded int NOT NULL,
      failed int NOT NULL,
      PRIMARY KEY (step, instance)
    );
    CREATE TABLE origins (origin bytea PRIMARY KEY, next_at bigint NOT NULL);
    CREATE INDEX origins_age ON origins (next_at);

    """
}
