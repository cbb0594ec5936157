internal import Foundation
internal import GRDB
package import Jobs
internal import Logging

/// Cache entries. All changes go through these functions, so that references to images and counters
/// stay consistent.
extension WriteTransaction {
  /// Stores an entry and evicts the least recently used ones beyond the limit.
  ///
  /// An entry that is larger than the limit, or whose image is not stored, is not stored. The
  /// existing entry with the same id is deleted in any case, because it is outdated.
  mutating func saveEntry(
    _ row: CacheRow, within limit: Int, at moment: Timestamp, lastUse: CacheEntry.LastUse,
    arriving: ImageDigest? = nil, _ references: inout ReferenceChanges
  ) throws {
    try deleteEntries([row.id], &references)
    let (digest, bytes) = (row.digest.data, row.bytes)
    let isArriving = arriving == row.digest
    guard bytes <= limit, try isArriving || references.begins(digest) || isStored(digest) else {
      return
    }
    if try isArriving || !isCached(digest) { counters.cacheBytes += bytes }
    try execute(
      """
      INSERT INTO cache (key, selector, digest, bytes, stored, used, record, resource)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?)
      """,
      [
        row.id.key.data, row.id.selector.data, digest, bytes, moment.milliseconds,
        moment.milliseconds, row.record, row.resource?.data,
      ])
    let number = db.lastInsertedRowID
    counters.cacheEntries += 1
    counters.cacheRecordBytes += row.record.count
    references.addEntry(digest, bytes: bytes, at: moment)
    if row.isResponse { try deleteOldest(of: row.id.key, &references) }
    try evict(downTo: limit, sparing: number, lastUse: lastUse, &references)
  }

  /// Deletes the oldest entries of a key beyond the limit, up to 256, so that other writers do not
  /// wait long.
  private mutating func deleteOldest(
    of key: Fingerprint, _ references: inout ReferenceChanges
  ) throws {
    let first = try one(
      "SELECT number FROM cache WHERE key = ? ORDER BY number DESC LIMIT 1 OFFSET ?",
      [key.data, CacheEntry.maxOfKey])
    // Usually the key has fewer entries.
    guard let first else { return }
    let number: Int64 = first[0]
    _ = try deleteEntries(
      where: "number IN (SELECT number FROM cache WHERE key = ? AND number <= ? LIMIT 256)",
      [key.data, number], &references)
  }

  private func isCached(_ digest: Data) throws -> Bool {
    try exists("SELECT 1 FROM cache WHERE digest = ? LIMIT 1", [digest])
  }

  /// Stores a variant and releases the reservation of its image.
  mutating func saveVariant(
    _ variant: CacheRow, within limit: Int, releasing holder: Data, at moment: Timestamp,
    lastUse: CacheEntry.LastUse
  ) throws {
    var references = ReferenceChanges()
    try saveEntry(variant, within: limit, at: moment, lastUse: lastUse, &references)
    try deleteReservations(of: holder, &references)
    try apply(references)
  }

  /// Evicts the least recently used entries until the others fit.
  /// - Parameters:
  ///   - spared: the number of an entry that stays.
  ///   - lastUse: called for each entry before its eviction. If the entry was used since, the time
  ///     is stored and the entry stays for now.
  mutating func evict(
    downTo limit: Int, sparing spared: Int64? = nil, lastUse: CacheEntry.LastUse,
    _ references: inout ReferenceChanges
  ) throws {
    while counters.cacheSize > limit {
      let oldest = try one(
        "SELECT number, key, selector, used FROM cache WHERE number IS NOT ? ORDER BY used, number LIMIT 1",
        [spared])
      guard let oldest else {
        if spared != nil { return }
        throw StoreError.unavailable(detail: "the cache's byte count is wrong")
      }
      let number: Int64 = oldest[0]
      if let moment = newerLastUse(of: oldest, lastUse) {
        try execute("UPDATE cache SET used = ? WHERE number = ?", [moment, number])
      } else {
        _ = try deleteEntries(where: "number = ?", [number], &references)
      }
    }
  }

  /// Returns the entry's last use if it is later than the stored one.
  private func newerLastUse(of row: Row, _ lastUse: CacheEntry.LastUse) -> Int64? {
    guard let key = Fingerprint(bytes: row[1] as Data),
      let selector = Fingerprint(bytes: row[2] as Data),
      let moment = lastUse(CacheEntry.ID(key: key, selector: selector))?.milliseconds
    else { return nil }
    return moment > row[3] as Int64 ? moment : nil
  }

  func touch(_ id: CacheEntry.ID, at moment: Timestamp) throws {
    try execute(
      "UPDATE cache SET used = ? WHERE key = ? AND selector = ? AND used < ?",
      [moment.milliseconds, id.key.data, id.selector.data, moment.milliseconds])
  }

  mutating func deleteEntries(_ ids: [CacheEntry.ID], _ references: inout ReferenceChanges) throws {
    for id in ids {
      let arguments: StatementArguments = [id.key.data, id.selector.data]
      // Usually there is no such entry.
      guard try exists("SELECT 1 FROM cache WHERE key = ? AND selector = ?", arguments) else {
        continue
      }
      _ = try deleteEntries(where: "key = ? AND selector = ?", arguments, &references)
    }
  }

  /// Deletes the entries of images.
  mutating func deleteEntries(ofImages images: Set<CachedImage>) throws {
    var references = ReferenceChanges()
    for image in images {
      _ = try deleteEntries(where: "key = ?", [image.variants.data], &references)
      for key in image.keys {
        _ = try deleteEntries(
          where: "key = ? AND digest = ?", [key.data, image.digest.data], &references)
      }
    }
    try apply(references)
  }

  /// Deletes up to `count` entries of a resource.
  /// - Returns: the image of each entry.
  mutating func deleteEntries(ofResource: Fingerprint, count: Int) throws -> [ImageDigest] {
    var references = ReferenceChanges()
    let gone = try deleteRows(
      where: """
        number IN (SELECT number FROM cache WHERE key = ?1
          UNION ALL SELECT number FROM cache WHERE resource = ?1 LIMIT ?2)
        """, [ofResource.data, count], &references)
    try apply(references)
    return gone.compactMap { ImageDigest(bytes: $0) }
  }

  /// Deletes the entries that match a condition, with their references.
  /// - Returns: the number of deleted entries.
  mutating func deleteEntries(where condition: String, _ arguments: StatementArguments) throws
    -> Int
  {
    var references = ReferenceChanges()
    let count = try deleteEntries(where: condition, arguments, &references)
    try apply(references)
    return count
  }

  private mutating func deleteEntries(
    where condition: String, _ arguments: StatementArguments, _ references: inout ReferenceChanges
  ) throws -> Int {
    try deleteRows(where: condition, arguments, &references).count
  }

  /// - Returns: the digest of each deleted entry's image.
  mutating func deleteRows(
    where condition: String, _ arguments: StatementArguments, _ references: inout ReferenceChanges
  ) throws -> [Data] {
    let rows = try all(
      "DELETE FROM cache WHERE \(condition) RETURNING digest, bytes, length(record)", arguments)
    var sizes: [Data: Int] = [:]
    for row in rows {
      references.deleteEntry(row[0])
      sizes[row[0]] = row[1]
      counters.cacheEntries -= 1
      counters.cacheRecordBytes -= row[2] as Int
    }
    for (digest, bytes) in sizes where try !isCached(digest) { counters.cacheBytes -= bytes }
    return rows.map { $0[0] }
  }
}

/// The result of one transaction that removes references to an image.
struct ReferenceRemoval: Sendable {
  /// The jobs that lost the image.
  var jobs: [JobID]
  /// Whether further references are left.
  var isMore = false
}

/// Eviction of images: the images that finished jobs and the cache have referred to for the longest
/// time are evicted first.
///
/// An owner may use the whole limit while no other owner has images, and half of it otherwise. The
/// images of an owner above its share are evicted first, so that no owner can evict images that
/// others have just fetched. An image with jobs of several owners counts for none of them.
///
/// Removing a reference writes a row, and all other writes wait. So a transaction removes at most
/// ``maxRemovedReferences`` references. An image with more references is skipped, so that other images free
/// space at once. Each transaction that skips it removes a portion of its references. Until few are
/// left, the image is stored and can get new references.
extension WriteTransaction {
  /// The maximum number of references that one transaction removes.
  static let maxRemovedReferences = 2_000

  /// Evicts images until the others fit or the transaction can do no more.
  /// - Parameter gone: receives the images whose files are to be removed.
  /// - Returns: whether the others fit.
  mutating func evictImages(
    downTo limit: Int, for instance: Instance, _ gone: inout [ImageDigest]
  ) throws -> Bool {
    var crowded: Data?
    while counters.imageBytes > limit {
      if let digest = try markUnreferenced(1, for: instance).first {
        gone.append(digest)
        continue
      }
      let owner = counters.imageOwners.ownerOverShare(of: limit, total: counters.imageBytes)
      guard let oldest = try oldestImage(sharedByAtMost: .max, of: owner) else {
        throw StoreError.unavailable(detail: "the byte count of images is wrong")
      }
      var next: (digest: Data, image: ImageRow)? = oldest
      if oldest.image.soft > Self.maxRemovedReferences {
        crowded = oldest.digest
        // An owner above its share must not cause the eviction of others' images because each of
        // its own has very many references.
        next =
          if let owner {
            try one(Self.oldestImageOfOwner, [Self.maxRemovedReferences, owner]).map {
              ($0[7], ImageRow($0))
            }
          } else {
            try oldestImage(sharedByAtMost: Self.maxRemovedReferences, of: nil)
          }
      }
      guard let (digest, image) = next, image.soft <= removableReferences else { break }
      removableReferences -= image.soft
      try evict(digest, image, for: instance)
      if !image.isEmbedded, let name = ImageDigest(bytes: digest) { gone.append(name) }
    }
    // Runs last, because freeing space for other images comes first.
    if let crowded, removableReferences > 0 {
      _ = try removeReferences(to: crowded, atMost: removableReferences)
      removableReferences = 0
    }
    return counters.imageBytes <= limit
  }

  /// Returns the oldest image that is not in use.
  /// - Parameter owner: the owner whose images are evicted first; if it has none, any other image
  ///   is returned.
  private func oldestImage(
    sharedByAtMost count: Int, of owner: Data?
  ) throws -> (digest: Data, image: ImageRow)? {
    if let owner, let image = try one(Self.oldestImageOfOwner, [count, owner]) {
      return (image[7], ImageRow(image))
    }
    return try one(
      "\(Self.evictableImages) ORDER BY finished_at LIMIT 1", [count]
    ).map { ($0[7], ImageRow($0)) }
  }

  private static let evictableImages = """
    SELECT \(ImageRow.columns), digest FROM images
    WHERE hard = 0 AND soft > 0 AND leaving = 0 AND soft <= ?
    """

  static let oldestImageOfOwner =
    "\(evictableImages) AND owner = ? ORDER BY finished_at LIMIT 1"

  /// Removes a portion of the references to an image, however much space is free, unless the image
  /// is in use.
  /// - Returns: `nil` if the image stays or does not exist.
  mutating func removeReferences(to digest: Data, for instance: Instance) throws
    -> ReferenceRemoval?
  {
    guard let known = try image(digest), !known.isPendingDeletion, known.hard == 0 else {
      return nil
    }
    guard known.soft <= Self.maxRemovedReferences else {
      return ReferenceRemoval(
        jobs: try removeReferences(to: digest, atMost: Self.maxRemovedReferences), isMore: true)
    }
    let jobs = try all("SELECT id FROM jobs WHERE image = ?", [digest])
    try evict(digest, known, for: instance)
    return ReferenceRemoval(jobs: jobs.compactMap { JobID(data: $0[0]) })
  }

  /// Evicts an image with all of its references. Jobs notice when they are read next; the cache
  /// entries are deleted.
  private mutating func evict(
    _ digest: Data, _ image: ImageRow, for instance: Instance
  ) throws {
    try execute("UPDATE jobs SET image = NULL, low = NULL WHERE image = ?", [digest])
    try execute("UPDATE jobs SET source = NULL WHERE source = ?", [digest])
    // The image's row is deleted too, so these changes are discarded.
    var references = ReferenceChanges()
    _ = try deleteRows(where: "digest = ?", [digest], &references)
    if image.isEmbedded {
      try removeEmbedded(digest, bytes: image.bytes)
    } else {
      try markPendingDeletion(digest, bytes: image.bytes, for: instance)
    }
  }

  /// Removes up to `count` references to an image that is not in use, cache entries first, so that
  /// later requests fetch it again. The image must have more references.
  /// - Returns: the jobs that lost the image.
  private mutating func removeReferences(to digest: Data, atMost count: Int) throws -> [JobID] {
    var left = count
    left -= try deleteEntries(
      where: "number IN (SELECT number FROM cache WHERE digest = ? LIMIT ?)", [digest, left])
    let jobs = try all(
      """
      UPDATE jobs SET image = NULL, low = NULL WHERE number IN
        (SELECT number FROM jobs WHERE image = ? LIMIT ?) RETURNING id
      """, [digest, left])
    left -= jobs.count
    let sources = try execute(
      """
      UPDATE jobs SET source = NULL WHERE number IN
        (SELECT number FROM jobs WHERE source = ? LIMIT ?)
      """, [digest, left])
    try execute(
      "UPDATE images SET soft = soft - ?, finished_at = ? WHERE digest = ?",
      [jobs.count + sources, try oldestFinish(of: digest), digest])
    return jobs.compactMap { JobID(data: $0[0]) }
  }
}

/// A cache entry to store: a response or a variant.
struct CacheRow: Sendable {
  let id: CacheEntry.ID
  /// ``CacheEntry/resource`` if it differs from the key.
  let resource: Fingerprint?
  let digest: ImageDigest
  let bytes: Int
  /// A response as JSON. For a variant only its name, for display: the other columns contain the
  /// rest.
  let record: Data
  /// Whether it is a response. Responses of one key are searched together; variants are not.
  let isResponse: Bool

  /// - Throws: an error if the entry can't be encoded.
  init(_ entry: CacheEntry) throws {
    (id, digest, bytes) = (entry.id, entry.image.digest, entry.image.bytes)
    resource = entry.resource == entry.id.key ? nil : entry.resource
    record = try CacheRecord.data(of: entry)
    isResponse = true
  }

  init(_ variant: StoredVariant) {
    (id, digest, bytes) = (variant.id, variant.digest, variant.bytes)
    resource = nil
    record = Data(variant.name.utf8)
    isResponse = false
  }
}

/// The cache index. It is in the same database as the jobs because both refer to images.
extension SQLiteJobStore: CacheStore {
  /// Reads the entries on a reading thread. All queries see the same snapshot.
  package func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]] {
    try await read { [log] db in
      let statement = try db.cachedStatement(
        sql: "SELECT record FROM cache WHERE key = ? ORDER BY number")
      return try keys.map { key in
        try Data.fetchAll(statement, arguments: [key.data]).compactMap { Self.entry($0, log) }
      }
    }
  }

  /// Skips an unreadable entry, because the origin can be asked instead.
  private static func entry(_ record: Data, _ log: Logger) -> CacheEntry? {
    do { return try CacheRecord.entry(from: record) } catch {
      log.error("skipping unreadable cache entry", metadata: ["error": "\(error)"])
      return nil
    }
  }

  /// Updates the times when entries were last used; a time never moves backwards.
  package func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError) {
    guard !uses.isEmpty else { return }
    try await writer.perform(isSynced: false) { transaction in
      for (id, moment) in uses { try transaction.touch(id, at: moment) }
    }
  }

  /// Deletes entries; their images become candidates for deletion if nothing else refers to them.
  package func delete(_ ids: [CacheEntry.ID]) async throws(StoreError) {
    guard !ids.isEmpty else { return }
    try await writer.perform { transaction in
      var references = ReferenceChanges()
      try transaction.deleteEntries(ids, &references)
      try transaction.apply(references)
    }
  }

  /// Deletes all entries under these keys in one commit.
  package func delete(keys: [Fingerprint]) async throws(StoreError) -> Int {
    guard !keys.isEmpty else { return 0 }
    return try await writer.perform { transaction in
      try keys.reduce(0) { try $0 + transaction.deleteEntries(where: "key = ?", [$1.data]) }
    }
  }

  /// Deletes up to `count` entries in one commit.
  package func delete(
    resource: Fingerprint, count: Int
  ) async throws(StoreError) -> [ImageDigest] {
    try await writer.perform { try $0.deleteEntries(ofResource: resource, count: count) }
  }

  /// Deletes the entries that exist now, 500 per commit, so that other writers do not wait long.
  package func clear() async throws(StoreError) -> Int {
    let last = try await writer.perform {
      try $0.one("SELECT max(number) FROM cache")?[0] as Int64?
    }
    guard let last else { return 0 }
    var count = 0
    while true {
      let dropped = try await writer.perform {
        try $0.deleteEntries(
          where: "number IN (SELECT number FROM cache WHERE number <= ? LIMIT 500)", [last])
      }
      count += dropped
      if dropped == 0 { return count }
    }
  }

  /// Reads the variant on a reading thread.
  package func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant? {
    try await read { db in
      let statement = try db.cachedStatement(
        sql: "SELECT record, digest, bytes FROM cache WHERE key = ? AND selector = ?")
      guard
        let row = try Row.fetchOne(statement, arguments: [id.key.data, id.selector.data]),
        let digest = ImageDigest(bytes: row[1] as Data)
      else { return nil }
      let name = String(decoding: row[0] as Data, as: UTF8.self)
      return StoredVariant(id: id, name: name, digest: digest, bytes: row[2])
    }
  }

  /// Stores a variant and releases the reservation of its image, in one commit.
  package func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError) {
    try await writer.perform { [now] in
      try $0.saveVariant(
        CacheRow(variant), within: limit, releasing: holder.data, at: now(), lastUse: lastUse)
    }
  }

  /// The counts after the last commit. Does not use the disk.
  package func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int) {
    writer.cacheCounts
  }
}
