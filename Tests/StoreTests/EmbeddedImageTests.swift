import Digests
import Foundation
import Jobs
import SQL
import TestSupport
import Testing

@testable import Images

/// Images stored in the job store's database.
@Suite("Small images")
struct EmbeddedImageTests {
  private let folder: TemporaryFolder
  private let store: StoreUnderTest
  private let files: FileImageStore
  private let images: TieredImageStore

  init() throws {
    folder = try TemporaryFolder()
    store = try folder.openJobs()
    files = try folder.openImages()
    images = TieredImageStore(jobs: store.sql, files: files)
  }

  /// Submits a job and completes it with an image of these bytes.
  private func succeed(
    _ number: Int64, with content: [UInt8], limit: Int = .max, entry: CacheEntry? = nil
  ) async throws -> Completed {
    _ = try await store.submit(.sample(number))
    let (_, claim) = try #require(await store.claimOne(at: .at(number)))
    let image = EmbeddedImage(content)
    return try await store.complete(
      Completion([claim], entry: entry, image: image, imageLimit: limit) {
        $0.succeed(with: image.digest, bytes: content.count, at: .at(number))
        return true
      })
  }

  @Test("a small image is stored by the transaction that completes its job, and not as a file")
  func kept() async throws {
    let content = [UInt8](repeating: 7, count: 10_000)
    _ = try await store.instance
    let before = store.work.transactions
    let completed = try await succeed(1, with: content)
    #expect(store.work.transactions == before + 3, "submitted, claimed, completed")
    #expect(completed.evicted == [])
    let image = try #require(completed.jobs[0]?.image)
    let opened = try #require(await images.open(image.digest))
    #expect(opened.read(at: 0, count: 20_000) == content)
    #expect(try await images.verify(image.digest, bytes: content.count))
    #expect(try await !images.verify(image.digest, bytes: 9_999))
    #expect(folder.files(below: "images") == [])
    try await store.audit()
    await store.close()
  }

  @Test("a small image survives a restart")
  func restarted() async throws {
    let completed = try await succeed(1, with: [1, 2, 3])
    await store.close()
    let again = try folder.openJobs()
    let image = try #require(completed.jobs[0]?.image)
    #expect(try await again.sql.embeddedImage(image.digest) == [1, 2, 3])
    await again.close()
  }

  @Test("a small image is deleted with the last reference")
  func gone() async throws {
    let first = try #require(try await succeed(1, with: [1, 2, 3]).jobs[0])
    let second = try #require(try await succeed(2, with: [1, 2, 3]).jobs[0])
    let digest = try #require(first.image?.digest)
    #expect(try await store.counts().images == 1)
    #expect(try await store.remove(first.id))
    #expect(try await images.open(digest) != nil)
    #expect(try await store.remove(second.id))
    #expect(try await store.unreferencedImages(9) == [], "there is no file to remove")
    #expect(try await images.open(digest) == nil)
    #expect(try await store.counts().imageBytes == 0)
    try await store.audit()
    await store.close()
  }

  @Test("a small image stays for a cache entry alone, and is not stored without a reference")
  func references() async throws {
    let image = EmbeddedImage([1, 2, 3])
    let entry = try CacheEntry.sample(1, image.digest, bytes: 3)
    let lost = Claim(job: JobID(at: .at(2)), instance: .none, number: 7)
    _ = try await store.complete(Completion([lost], entry: entry, image: image) { _ in false })
    #expect(try await images.open(image.digest) != nil)
    try await store.delete([entry.id])
    _ = try await store.unreferencedImages(9)
    #expect(try await images.open(image.digest) == nil)
    _ = try await store.complete(Completion([lost], image: image) { _ in false })
    _ = try await store.unreferencedImages(9)
    #expect(try await images.open(image.digest) == nil)
    #expect(try await store.counts().images == 0)
    try await store.audit()
    await store.close()
  }

  @Test("a small image evicts the images of the oldest finished jobs, small ones and files")
  func givingWay() async throws {
    let file = try #require(await store.succeed(1, with: .sample(1), bytes: 40))
    let small = try #require(try await succeed(2, with: Array(0..<40)).jobs[0])
    let completed = try await succeed(3, with: Array(40..<80), limit: 100)
    #expect(completed.evicted.map(\.digest) == [.sample(1)])
    try await store.confirmDeletion(completed.evicted.map(\.digest))
    #expect(try await store.job(file.id)?.image?.isKept == false)
    #expect(try await store.job(small.id)?.image?.isKept == true)
    #expect(try await succeed(4, with: Array(80..<120), limit: 100).evicted == [])
    #expect(try await store.job(small.id)?.image?.isKept == false)
    #expect(try await store.counts().imageBytes == 80)
    try await store.audit()
    await store.close()
  }

  @Test("a completion changes nothing if its small image does not fit")
  func full() async throws {
    _ = try await store.reserve(.sample(1), bytes: 90, as: JobID(at: .at(0)), limit: 100)
    await #expect(throws: StoreError.full) { try await succeed(1, with: Array(0..<20), limit: 100) }
    #expect(try await store.counts().jobs[.loading] == 1)
    #expect(try await store.counts().images == 1)
    try await store.audit()
    await store.close()
  }

  @Test("a small image replaces an equal file that is being deleted")
  func pendingDeletion() async throws {
    let image = EmbeddedImage([1, 2, 3])
    let gone = try #require(await store.succeed(1, with: image.digest, bytes: 3))
    #expect(try await store.remove(gone.id))
    #expect(try await store.unreferencedImages(9) == [image.digest])
    _ = try await succeed(2, with: image.content)
    try await store.confirmDeletion([image.digest])
    #expect(try await images.open(image.digest) != nil)
    try await store.audit()
    await store.close()
  }

  @Test("a small image is not stored again if a file has the same bytes")
  func file() async throws {
    let staged = try await files.stage()
    try staged.write([1, 2, 3])
    let digest = staged.finish()
    #expect(staged.content == [1, 2, 3])
    _ = try await store.reserve(digest, bytes: 3, as: JobID(at: .at(0)), limit: .max)
    try await images.put(staged, as: ImageName(digest))
    _ = try await succeed(1, with: [1, 2, 3])
    #expect(try SQLiteFile(folder.path + "/jobs.sqlite").int("SELECT count(*) FROM contents") == 0)
    #expect(try await images.open(digest)?.count == 3)
    try await store.audit()
    await store.close()
  }

  @Test("no file is stored for an image in the database, unless the stored bytes are corrupt")
  func embedded() async throws {
    let completed = try await succeed(1, with: [1, 2, 3])
    let digest = try #require(completed.jobs[0]?.image).digest
    func put() async throws {
      let staged = try await files.stage()
      try staged.write([1, 2, 3])
      try await images.put(staged, as: ImageName(staged.finish()))
    }
    _ = try await store.reserve(digest, bytes: 3, as: JobID(at: .at(0)), limit: .max)
    try await put()
    #expect(folder.files(below: "images") == [])
    #expect(try await images.open(digest)?.count == 3)
    try await store.audit()
    try SQLiteFile(folder.path + "/jobs.sqlite").run("UPDATE contents SET bytes = x'010204'")
    try await put()
    #expect(folder.files(below: "images").count == 1)
    await store.close()
  }

  @Test("a corrupt small image is not served")
  func harmed() async throws {
    let completed = try await succeed(1, with: [1, 2, 3])
    let image = try #require(completed.jobs[0]?.image)
    try SQLiteFile(folder.path + "/jobs.sqlite").run("UPDATE contents SET bytes = x'010204'")
    #expect(try await images.open(image.digest) == nil)
    #expect(try await !images.verify(image.digest, bytes: 3))
    await store.close()
  }
}

extension EmbeddedImage {
  init(_ content: [UInt8]) {
    self.init(
      digest: ImageDigest(bytes: Array(SHA256.hash(data: content)))!, content: content)  // 32 bytes
  }
}
