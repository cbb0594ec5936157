internal import Digests
package import Jobs

/// Images wherever they are kept: the small ones in the job store's database, which takes them in by the transaction that
/// ends their jobs; the others in files.
package final class TieredImageStore: ImageStore {
  private let jobs: any EmbeddedImages
  private let files: any ImageStore

  package init(jobs: any EmbeddedImages, files: any ImageStore) {
    self.jobs = jobs
    self.files = files
  }

  /// Stores the image in a file; small images are written to the database by the transaction that
  /// completes their jobs. Does nothing if the database contains the image and it is intact,
  /// because the file would never be used.
  package func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    if let content = staged.content, content.count <= jobs.largestEmbedded,
      let bytes = try await jobs.embeddedImage(name.digest), Self.isWhole(bytes, name.digest)
    {
      return
    }
    try await files.put(staged, as: name)
  }

  /// Reads the database first, then the files. A corrupt image in the database counts as missing.
  package func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    if let bytes = try await jobs.embeddedImage(digest) {
      return Self.isWhole(bytes, digest) ? .memory(bytes) : nil
    }
    return try await files.open(digest)
  }

  /// Reports the disk of the files. The job store reports the disk of the database.
  package func isLow() async -> Bool { await files.isLow() }

  /// Reports the disk of the files.
  package func hasRoom() async -> Bool { await files.hasRoom() }

  /// Hashes a small image on each call, which takes some microseconds.
  package func verify(_ digest: ImageDigest, bytes count: Int) async throws(StoreError) -> Bool {
    guard count <= jobs.largestEmbedded else { return try await files.verify(digest, bytes: count) }
    let bytes = try await jobs.embeddedImage(digest)
    guard let bytes else { return try await files.verify(digest, bytes: count) }
    return bytes.count == count && Self.isWhole(bytes, digest)
  }

  /// Removes the file. The bytes in the database are deleted with the last reference.
  package func remove(_ name: ImageName) async throws(StoreError) {
    try await files.remove(name)
  }

  /// Sweeps the files. The database can't contain orphaned images.
  package func sweep(
    _ remove: @Sendable ([ImageName]) async -> Int
  ) async throws(StoreError) -> Int { try await files.sweep(remove) }

  package func deleteTemporaryFiles() async throws(StoreError) {
    try await files.deleteTemporaryFiles()
  }

  package func deleteCopy(of digest: ImageDigest) async { await files.deleteCopy(of: digest) }

  private static func isWhole(_ bytes: [UInt8], _ digest: ImageDigest) -> Bool {
    SHA256.hash(data: bytes).elementsEqual(digest.bytes)
  }
}
