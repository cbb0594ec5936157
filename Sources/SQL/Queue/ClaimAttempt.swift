internal import Jobs
internal import Synchronization

/// Claims whose commit is uncertain, because the connection broke before the server answered. If
/// the commit succeeded, this instance holds the jobs but no worker runs them until the lease ends.
///
/// The next claim requeues the jobs that it finds under these numbers. A commit can take longer
/// than that, for example while the server's disk stalls. Therefore the numbers are remembered and
/// compared with the held claims at each renewal of the lease.
final class UncertainClaims: Sendable {
  private struct Numbers {
    /// The numbers that the next claim searches for.
    var next: Set<Int64> = []
    /// All numbers, or the newest ones.
    var all: Set<Int64> = []
  }

  private let numbers = Mutex(Numbers())
  /// The maximum number of remembered claims; few are lost at a time.
  private static let most = 1 << 16

  func add(_ more: Set<Int64>) {
    guard !more.isEmpty else { return }
    numbers.withLock { numbers in
      numbers.next.formUnion(more)
      numbers.all.formUnion(more)
      if numbers.all.count > Self.most {
        numbers.all = Set(numbers.all.sorted().suffix(Self.most / 2))
      }
    }
  }

  /// Makes the next claim search again for the uncertain numbers among the claims that are held
  /// now.
  /// - Returns: whether there are any.
  func recheck(among held: Set<Int64>) -> Bool {
    numbers.withLock { numbers in
      let late = numbers.all.intersection(held)
      numbers.next.formUnion(late)
      return !late.isEmpty
    }
  }

  func removeAll() -> Set<Int64> {
    numbers.withLock { numbers in
      defer { numbers.next = [] }
      return numbers.next
    }
  }
}

/// One call that claims jobs; a failed transaction is tried again within it.
final class ClaimAttempt: Sendable {
  /// Claim numbers, by the try that used them.
  private struct Tries {
    /// The last try of this call.
    var last: Set<Int64> = []
    /// The tries before the last one.
    var before: Set<Int64> = []
    /// Failed calls before this one.
    var ofOthers: Set<Int64> = []
  }

  private let unknown: UncertainClaims
  private let tries = Mutex(Tries())

  init(_ unknown: UncertainClaims) { self.unknown = unknown }

  /// Starts a try.
  /// - Returns: the numbers that earlier tries or failed calls may have claimed; this transaction
  ///   must requeue them.
  func startTry() -> Set<Int64> {
    tries.withLock { tries in
      tries.before.formUnion(tries.last)
      tries.last = []
      tries.ofOthers.formUnion(unknown.removeAll())
      return tries.before.union(tries.ofOthers)
    }
  }

  /// Starts a try and requeues the jobs that earlier tries may have claimed.
  func requeueEarlierClaims(in transaction: Transaction) throws {
    let earlier = startTry()
    if !earlier.isEmpty { try transaction.requeueClaims(earlier) }
  }

  /// Records the numbers that this try is about to claim.
  func record(_ claims: [Int64]) -> [Int64] {
    tries.withLock { $0.last.formUnion(claims) }
    return claims
  }

  /// The last try was committed. The numbers of earlier tries are checked again by the next call,
  /// because the server may still have been committing one of them while this call searched.
  func succeed() { unknown.add(tries.withLock(\.before)) }

  /// The last try was committed with these claims. All other recorded numbers belong to repeated
  /// tries or were not used.
  /// - Returns: whether there are other numbers; the next claim requeues their jobs.
  func succeed(with claims: [Int64]) -> Bool {
    let left = tries.withLock(\.last).subtracting(claims)
    unknown.add(left)
    return !left.isEmpty
  }

  /// The call failed: the next call requeues all jobs that it may have claimed.
  func fail() { unknown.add(tries.withLock { $0.last.union($0.before).union($0.ofOthers) }) }
}

extension Transaction {
  /// Requeues the jobs of uncertain claims. If other jobs share their load, those continue.
  fileprivate func requeueClaims(_ claims: Set<Int64>) throws {
    let rows = try execute(
      """
      SELECT owner, places, batch, CASE WHEN leads THEN request END, id FROM queue
      WHERE state = 4 AND instance = ANY ($1) AND claim = ANY ($2) ORDER BY id FOR UPDATE
      """, [.ints(Array(Set(claims.map { $0 >> 32 }))), .ints(Array(claims))])
    guard !rows.isEmpty else { return }
    try add(
      """
      UPDATE queue SET state = 0, instance = NULL, claim = NULL, claimed_at = NULL, leads = false
      WHERE id = ANY ($1)
      """, [.ids(rows.all.compactMap { rows.id($0, 4) })])
    for row in rows.all {
      tallies[.phase(.loading)] -= 1
      tallies[.phase(.queued)] += 1
      let batch = rows.int(row, 2).flatMap { $0 > 0 ? $0 : nil }
      if let owner = rows.bytes(row, 0) {
        tallies[batch == nil ? .places(owner) : .lines(owner)] += Int(rows.int(row, 1) ?? 0)
      }
      batches.recordPhaseChange(in: batch, from: .loading, to: .queued)
    }
    try continueLoads(Set(rows.all.compactMap { rows.bytes($0, 3) }))
  }
}
