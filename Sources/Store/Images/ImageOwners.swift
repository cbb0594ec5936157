internal import Foundation
internal import GRDB
internal import HashTreeCollections
internal import Jobs

/// The bytes of images that belong to one owner alone; see ``ImageRow/owner``.
struct ImageOwners: Sendable, Equatable {
  private struct Share: Comparable, Sendable {
    let bytes: Int
    let owner: Data

    static func < (a: Self, b: Self) -> Bool {
      a.bytes == b.bytes ? a.owner.lexicographicallyPrecedes(b.owner) : a.bytes < b.bytes
    }
  }

  private var bytes: TreeDictionary<Data, Int> = [:]
  private var shares = SortedElements<Share>()

  init() {}

  /// Loads the sums from the database.
  init(counting db: Database) throws {
    let owners = try Row.fetchCursor(
      db, sql: "SELECT owner, sum(bytes) FROM images WHERE leaving = 0 GROUP BY owner")
    while let row = try owners.next() { add(row[1], of: row[0]) }
  }

  static func == (a: Self, b: Self) -> Bool { a.bytes == b.bytes }

  mutating func add(_ count: Int, of owner: Data?) {
    guard let owner, !owner.isEmpty else { return }
    let before = bytes[owner] ?? 0
    if before > 0 { shares.remove(Share(bytes: before, owner: owner)) }
    let after = before + count
    bytes[owner] = after > 0 ? after : nil
    if after > 0 { shares.insert(Share(bytes: after, owner: owner)) }
  }

  /// Returns the owner that uses more than half of `limit`, if other owners have images too.
  /// - Parameter total: the bytes of all images.
  func ownerOverShare(of limit: Int, total: Int) -> Data? {
    guard let most = shares.last, most.bytes > limit - limit / 2, most.bytes < total
    else { return nil }
    return most.owner
  }
}
