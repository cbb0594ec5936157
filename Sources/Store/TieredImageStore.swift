internal import Digests
internal import Foundation
internal import GRDB
public import Jobs

/// Images wherever they are kept: the small ones in the job store's database, which takes them in by the transaction that
/// ends their jobs; the others in files.
public final class TieredImageStore: ImageStore {
  private let jobs: any EmbeddedImages
  private let files: any ImageStore

  /// Both kinds of places.
  public init(jobs: any EmbeddedImages, files: any ImageStore) {
    self.jobs = jobs
    self.files = files
  }

  /// Into a file: a small image gets into the database by the transaction that ends its jobs. Where it is there already,
  /// whole, a file would be nobody's.
  public func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    if let content = staged.content, content.count <= jobs.largestEmbedded,
      let bytes = try await jobs.embeddedImage(name.digest), Self.isWhole(bytes, name.digest)
    {
      return
    }
    try await files.put(staged, as: name)
  }

  /// Looks into the database, then for a file. Bytes that were harmed are none.
  public func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    if let bytes = try await jobs.embeddedImage(digest) {
      return Self.isWhole(bytes, digest) ? .memory(bytes) : nil
    }
    return try await files.open(digest)
  }

  /// That of the files: the database says itself how full its disk is.
  public func isLow() async -> Bool { await files.isLow() }

  /// That of the files, too.
  public func hasRoom() async -> Bool { await files.hasRoom() }

  /// Hashes a small image each time it is looked at: that takes some microseconds.
  public func verify(_ digest: ImageDigest, bytes count: Int) async throws(StoreError) -> Bool {
    guard count <= jobs.largestEmbedded else { return try await files.verify(digest, bytes: count) }
    let bytes = try await jobs.embeddedImage(digest)
    guard let bytes else { return try await files.verify(digest, bytes: count) }
    return bytes.count == count && Self.isWhole(bytes, digest)
  }

  /// Removes the file; what is in the database goes with the last reference to it.
  public func remove(_ name: ImageName) async throws(StoreError) {
    try await files.remove(name)
  }

  /// Files alone can be left over.
  public func sweep(
    _ remove: @Sendable ([ImageName]) async -> Int
  ) async throws(StoreError) -> Int { try await files.sweep(remove) }

  /// That of the files.
  public func tidy() async throws(StoreError) { try await files.tidy() }

  /// That of the files.
  public func dropCopy(of digest: ImageDigest) async { await files.dropCopy(of: digest) }

  private static func isWhole(_ bytes: [UInt8], _ digest: ImageDigest) -> Bool {
    SHA256.hash(data: bytes).elementsEqual(digest.bytes)
  }
}

extension SQLiteJobStore: EmbeddedImages {
  /// Looks the bytes up on a thread that reads.
  public func embeddedImage(_ digest: ImageDigest) async throws(StoreError) -> [UInt8]? {
    try await read { db in
      let statement = try db.cachedStatement(
        sql: """
          SELECT contents.bytes FROM images JOIN contents ON number = embedded WHERE digest = ?
          """)
      return try Data.fetchOne(statement, arguments: [digest.data]).map { [UInt8]($0) }
    }
  }
}
