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

    """

  // A claim that starts transfers holds the advisory lock of each origin until its commit, so that it counts every transfer
  // there. `next_at`, in microseconds, is when the origin's rate limit allows the next request.
  //
  // The function cluster_load returns, by `kind`: 0 the number of other instances' transfers at an origin, 1 the instance that
  // loads a request, 2 an origin whose rate limit is reached, 3 an origin whose lock another instance holds. It waits up to
  // 200 ms for a lock and, after the first timeout, for no other: a holder may hang. It waits on the lock instead of polling,
  // because a process that polls would come after those that wait.
  static let sharing = """
    CREATE TABLE origins (origin bytea PRIMARY KEY, next_at bigint NOT NULL);
    CREATE INDEX origins_age ON origins (next_at);
    CREATE FUNCTION cluster_load(me bigint, now_ms bigint, of_origins bytea[], of_requests bytea[])
    RETURNS TABLE (kind int, what bytea, number bigint) LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
    DECLARE
      lock int;
      is_patient boolean := true;
      is_mine boolean;
    BEGIN
      FOR what, lock IN SELECT o, hashtext(encode(o, 'hex')) FROM unnest(of_origins) o ORDER BY 2 LOOP
        is_mine := pg_try_advisory_xact_lock(\(originLock), lock);
        IF NOT is_mine AND is_patient THEN
          BEGIN
            PERFORM pg_advisory_xact_lock(\(originLock), lock);
            is_mine := true;
          EXCEPTION WHEN lock_not_available THEN
            is_patient := false;
          END;
        END IF;
        IF NOT is_mine THEN
          kind := 3;
          number := 0;
          RETURN NEXT;
        END IF;
      END LOOP;
      RETURN QUERY
        SELECT 0, l.origin, count(*) FROM queue l
          WHERE l.state = 4 AND l.leads AND l.origin = ANY (of_origins) AND l.instance <> me GROUP BY l.origin
        UNION ALL SELECT 1, l.request, l.instance FROM queue l
          WHERE l.state = 4 AND l.leads AND l.request = ANY (of_requests)
        UNION ALL SELECT 2, o.origin, o.next_at FROM origins o
          WHERE o.origin = ANY (of_origins) AND o.next_at > now_ms * 1000;
    END $$;

    """

  /// The first key of an origin's advisory lock (pg_advisory_xact_lock); the second one is the hash of its name.
  private static let originLock = 7_210_015
}
