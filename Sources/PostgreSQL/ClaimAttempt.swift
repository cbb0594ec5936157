internal import Jobs
internal import Synchronization

/// Numbers of claims that may have been committed while nobody was told: the server's answer to a commit was lost. Their
/// jobs would be this instance's until its lease ends, and nobody would work on them.
///
/// The next claim puts back what it finds of them. A commit may take longer than that, as where the server's disk stands
/// still, so they are remembered: each renewal of the lease tells what is held by then.
final class UnknownClaims: Sendable {
  private struct Numbers {
    /// What the next claim looks for.
    var next: Set<Int64> = []
    /// All of them that there were, or the last ones.
    var all: Set<Int64> = []
  }

  private let numbers = Mutex(Numbers())
  /// Remembered, at the most: few are lost at a time.
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

  /// Has the next claim look again for those that are held now.
  /// - Returns: whether there are any.
  func lookAgain(among held: Set<Int64>) -> Bool {
    numbers.withLock { numbers in
      let late = numbers.all.intersection(held)
      numbers.next.formUnion(late)
      return !late.isEmpty
    }
  }

  func takeAll() -> Set<Int64> {
    numbers.withLock { numbers in
      defer { numbers.next = [] }
      return numbers.next
    }
  }
}

/// One call that claims, in however many transactions it is tried.
final class ClaimAttempt: Sendable {
  /// Numbers of claims.
  private struct Tries {
    /// Of the last try of this call.
    var last: Set<Int64> = []
    /// Of those before it.
    var before: Set<Int64> = []
    /// Of calls before this one.
    var ofOthers: Set<Int64> = []
  }

  private let unknown: UnknownClaims
  private let tries = Mutex(Tries())

  init(_ unknown: UnknownClaims) { self.unknown = unknown }

  /// Begins a try.
  /// - Returns: what earlier ones, of this call or of ones that failed, may have claimed: it is to be put back.
  func begin() -> Set<Int64> {
    tries.withLock { tries in
      tries.before.formUnion(tries.last)
      tries.last = []
      tries.ofOthers.formUnion(unknown.takeAll())
      return tries.before.union(tries.ofOthers)
    }
  }

  /// Begins a try, which puts back what earlier ones may have claimed.
  func putBackOthers(in transaction: Transaction) throws {
    let earlier = begin()
    if !earlier.isEmpty { try transaction.putBack(earlier) }
  }

  /// Notes what this try is about to claim.
  func note(_ claims: [Int64]) -> [Int64] {
    tries.withLock { $0.last.formUnion(claims) }
    return claims
  }

  /// Its last try was committed. The next call puts back what its earlier ones claimed once more: where an answer was lost
  /// the server may have been at that commit still while this one looked.
  func succeed() { unknown.add(tries.withLock(\.before)) }

  /// Whatever it noted beside these came of tries that were made again, or of none.
  /// - Returns: whether there are any: the next claim puts them back.
  func succeed(with claims: [Int64]) -> Bool {
    let left = tries.withLock(\.last).subtracting(claims)
    unknown.add(left)
    return !left.isEmpty
  }

  /// It failed: the next call puts back whatever came of it.
  func fail() { unknown.add(tries.withLock { $0.last.union($0.before).union($0.ofOthers) }) }
}

extension Transaction {
  /// Queues jobs again whose claims nobody was told of. Others that joined them go on.
  fileprivate func putBack(_ claims: Set<Int64>) throws {
    let rows = try execute(
      """
      UPDATE queue q SET state = 0, instance = NULL, claim = NULL, claimed_at = NULL, leads = false
      FROM (SELECT id, leads FROM queue WHERE state = 4 AND instance = ANY ($1) AND claim = ANY ($2)
        ORDER BY id FOR UPDATE) held
      WHERE q.id = held.id RETURNING q.owner, q.places, q.batch, CASE WHEN held.leads THEN q.request END
      """, [.ints(Array(Set(claims.map { $0 >> 32 }))), .ints(Array(claims))])
    for row in rows.all {
      tallies[.phase(.loading)] -= 1
      tallies[.phase(.queued)] += 1
      let batch = rows.int(row, 2)
      if let owner = rows.bytes(row, 0) {
        tallies[batch == nil ? .places(owner) : .lines(owner)] += Int(rows.int(row, 1) ?? 0)
      }
      batches.move(batch, from: .loading, to: .queued)
    }
    try passOn(Set(rows.all.compactMap { rows.bytes($0, 3) }))
  }
}
