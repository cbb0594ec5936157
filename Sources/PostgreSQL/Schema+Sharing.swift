/// What many instances need of the database beside the queue.
extension Schema {
  // A number is one life of one process, and is never given again. Of one that has `ended` what it held is being given back.
  // `name`, `version` and `url` are who an instance is, for people, and where others reach it.
  //
  // The other columns, and `activity`, are figures that instances publish, so that each can show those of all. Each writes rows
  // of its own: an instance that stands still in a transaction delays no other. A step's rows outlive their instance.
  static let instances = """
    CREATE TABLE instances (
      number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      lease_until bigint NOT NULL,
      ended boolean NOT NULL DEFAULT false,
      name bytea,
      version bytea,
      url bytea,
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

  // Whoever is to begin a transfer holds the origin's advisory lock until its commit, so that what it counts is all that there
  // is; one that has it and stands still is waited for briefly. `next_at`, in microseconds, is when the origin's rate allows
  // the next request.
  //
  // surroundings: what others' claims mean for jobs of these origins, and of these requests, which the caller is about to claim.
  // It waits for others by the lock itself, in all as long as one may that then stands still: who polls comes late, and the
  // more instances there are the later.
  static let sharing = """
    CREATE TABLE origins (origin bytea PRIMARY KEY, next_at bigint NOT NULL);
    CREATE INDEX origins_age ON origins (next_at);
    CREATE FUNCTION surroundings(me bigint, now_ms bigint, of_origins bytea[], of_requests bytea[])
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

  /// Of an origin (pg_advisory_xact_lock), beside its name's hash.
  private static let originLock = 7_210_015
}
