internal import GRDB
public import Jobs
internal import Logging

/// Instances share a database within one process alone: the folder is locked against any other.
extension SQLiteJobStore: InstanceLeases, StoreNews {
  /// Takes the next number, in a commit of its own.
  public func register(for lease: Duration) async throws(StoreError) -> Instance {
    let number = try await writer.perform { try NumberSequence.nextRun($0.db) }
    let instance = Instance(number: number)
    leases.begin(instance, for: lease)
    return instance
  }

  /// Costs the disk a look at the jobs that are loading, and no commit.
  public func renew(
    _ instance: Instance, for lease: Duration
  ) async throws(StoreError) -> Renewal? {
    guard leases.renew(instance, for: lease) else { return nil }
    let claims = try await read { try JobListing.claims(of: instance, $0) }
    return Renewal(at: now(), holding: claims)
  }

  /// Lets go in memory; who recovers next does the rest.
  public func retire(_ instance: Instance) async throws(StoreError) {
    leases.end(instance)
    exchange.end(instance)
  }

  /// Asks no disk while every lease lasts.
  public func recoverExpired(_ count: Int) async throws(StoreError) -> [Job] {
    guard count > 0, leases.expire() != nil else { return [] }
    let recovery = try await writer.perform { [leases] transaction in
      guard let ended = leases.expire() else { return Recovery() }
      var recovery = try transaction.recover(count, of: leases.living)
      if recovery.isComplete { recovery.ended = ended }
      return recovery
    }
    if let ended = recovery.ended { leases.haveRecovered(ended) }
    for error in recovery.unreadable {
      log.error("a job stays as it is", metadata: ["error": "\(error)"])
    }
    return recovery.jobs
  }

  /// The folder is locked.
  public var isExclusive: Bool { true }

  /// Hears what other instances of this process tell.
  public func news(for instance: Instance) -> AsyncStream<News> { exchange.news(for: instance) }

  /// Passes it on in memory.
  public func tell(_ news: News, from instance: Instance) { exchange.tell(news, from: instance) }
}

/// What came of giving back.
struct Recovery: Sendable {
  /// Jobs that are queued again.
  var jobs: [Job] = []
  /// Why others, which stay as they are, are not.
  var unreadable: [StoreError] = []
  var isComplete = false
  /// See ``Leases/expire()``; nil where more is left.
  var ended: Int?
}

extension WriteTransaction {
  /// Gives back what none of the living holds.
  mutating func recover(_ count: Int, of living: Set<Instance>) throws -> Recovery {
    var recovery = Recovery()
    var references = ReferenceChanges()
    var left: [JobRow] = []
    for owner in try JobListing.owners(db) where left.count < count {
      // Those that can't be read are met each time: there is no count of what is looked at.
      left += try JobRow.fetchAll("owner = ? AND phase = 1", [owner], db).filter { row in
        row.claim.map { !living.contains(ClaimNumbers.instance(of: $0)) } ?? true
      }
    }
    for row in left where recovery.jobs.count < count {
      let change: JobChange
      do {
        change = try JobChange(of: row) { job in
          job.requeue()
          return true
        }
      } catch {
        recovery.unreadable.append(StoreError(cause: error))
        continue
      }
      try save(change, &references)
      recovery.jobs.append(change.after)
    }
    try apply(references)
    recovery.isComplete = recovery.jobs.count < count
    if recovery.isComplete {
      try endReservations(exceptOf: living)
      try endPendingDeletions(exceptOf: living)
    }
    return recovery
  }
}
