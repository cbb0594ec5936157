/// What many instances need of the database beside the queue.
extension Schema {
  // A number is one life of one process, and is never given again. Of one that has `ended` what it held is being given back.
  static let instances = """
    CREATE TABLE settings (name text PRIMARY KEY, value bytea NOT NULL);
    CREATE TABLE instances (
      number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      lease_until bigint NOT NULL,
      ended boolean NOT NULL DEFAULT false
    ) WITH (fillfactor = 50);

    """

  // A loading job `leads` where it stands for a transfer: of those that ask the same one does, and there is one more
  // transfer at its origin. Whoever is to begin one holds the origin's advisory lock until its commit, so that what it
  // counts is all that there is; one that has it and stands still is waited for briefly. `next_at`, in microseconds, is when the origin's rate allows the next request.
  //
  // surroundings: what others' claims mean for jobs of these origins, and of these requests, which the caller is about to claim.
  static let sharing = """
    ALTER TABLE queue ADD COLUMN leads boolean NOT NULL DEFAULT false;
    CREATE INDEX queue_transfers ON queue (origin) WHERE state = 4 AND leads;
    CREATE INDEX queue_leads ON queue (request) WHERE state = 4 AND leads;
    CREATE INDEX queue_carried ON queue (request) WHERE state = 4 AND NOT leads;
    CREATE INDEX queue_awaiting ON queue (request) WHERE state = 3;
    CREATE TABLE origins (origin bytea PRIMARY KEY, next_at bigint NOT NULL);
    CREATE INDEX origins_age ON origins (next_at);
    CREATE FUNCTION surroundings(me bigint, now_ms bigint, of_origins bytea[], of_requests bytea[])
    RETURNS TABLE (kind int, what bytea, number bigint) LANGUAGE plpgsql AS $$
    DECLARE
      lock int;
      tries int := 0;
    BEGIN
      FOR what, lock IN SELECT o, hashtext(encode(o, 'hex')) FROM unnest(of_origins) o ORDER BY 2 LOOP
        WHILE NOT pg_try_advisory_xact_lock(\(originLock), lock) LOOP
          tries := tries + 1;
          IF tries > 40 THEN
            kind := 3;
            number := 0;
            RETURN NEXT;
            EXIT;
          END IF;
          PERFORM pg_sleep(0.005);
        END LOOP;
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

  // Waits for others by the lock itself, in all as long as one may that then stands still: who polls comes late, and the more
  // instances there are the later.
  static let patience = """
    CREATE OR REPLACE FUNCTION surroundings(me bigint, now_ms bigint, of_origins bytea[], of_requests bytea[])
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

  // Who an instance is, for people, and where others reach it; a release before this one says nothing of itself.
  static let presence = """
    ALTER TABLE instances ADD COLUMN name bytea, ADD COLUMN version bytea,
      ADD COLUMN url bytea, ADD COLUMN since bigint;
    """

  // Figures that instances publish, so that each can show those of all. Each writes rows of its own: an instance that stands
  // still in a transaction delays no other. A step's rows outlive their instance.
  static let activity = """
    ALTER TABLE instances ADD COLUMN workers int, ADD COLUMN cache_hits bigint NOT NULL DEFAULT 0,
      ADD COLUMN cache_revalidations bigint NOT NULL DEFAULT 0,
      ADD COLUMN cache_misses bigint NOT NULL DEFAULT 0, ADD COLUMN cache_memory bigint NOT NULL DEFAULT 0;
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

  /// Of an origin (pg_advisory_xact_lock), beside its name's hash.
  private static let originLock = 7_210_015
}
