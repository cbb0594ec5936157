import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

extension TestDatabase {
  /// Expires the leases of all instances, as after a power failure. Leases use the server's clock,
  /// which a test can't wait for.
  func loseInstances() throws { try server.run("UPDATE instances SET lease_until = 0", in: name) }
}

/// Transactions that a test blocks.
extension TestDatabase {
  /// Blocks transactions that fire this trigger until ``unblock()`` is called.
  func block(_ trigger: String) throws {
    try server.run(
      """
      CREATE TABLE opened ();
      CREATE FUNCTION wait_until_open() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM opened) LOOP PERFORM pg_sleep(0.01); END LOOP;
        RETURN NEW;
      END $$;
      CREATE \(trigger) EXECUTE FUNCTION wait_until_open()
      """, in: name)
  }

  func unblock() throws { try server.run("INSERT INTO opened DEFAULT VALUES", in: name) }

  /// An SQL condition: the thread's transaction is blocked by the trigger.
  static func isHeld(_ thread: String) -> String {
    "EXISTS (SELECT 1 FROM pg_stat_activity WHERE \(isOf(thread)) AND wait_event = 'PgSleep')"
  }

  /// An SQL condition: the thread's transaction waits for another one.
  static func waits(_ thread: String) -> String {
    "EXISTS (SELECT 1 FROM pg_stat_activity WHERE \(isOf(thread)) AND wait_event_type = 'Lock')"
  }

  private static func isOf(_ thread: String) -> String {
    "datname = current_database() AND application_name = 'imagefetch \(thread)'"
  }

  /// Waits until a condition holds. After a timeout the test continues, so that blocked transactions
  /// can end.
  func expect(_ condition: String, _ location: SourceLocation = #_sourceLocation) async {
    let holds = await poll { (try? server.run("SELECT \(condition)", in: name)) == "t\n" }
    #expect(holds, "\(condition)", sourceLocation: location)
  }
}

extension StoreUnderTest {
  /// Opens the store in a database. Long timeouts make each transaction complete its optional work,
  /// as in the other stores, even on a busy machine.
  init(
    in database: TestDatabase, _ clock: ManualClock,
    _ change: (inout SQLJobStore.Configuration) -> Void = { _ in }
  ) throws {
    var configuration = SQLJobStore.Configuration(url: database.url)
    configuration.now = { clock.now }
    configuration.timeout = .seconds(600)
    change(&configuration)
    self.init(try SQLJobStore(configuration), clock)
  }
}
