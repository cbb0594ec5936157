import Jobs
import Logging
import S3
import Store
import TestSupport
import Testing

@Suite("Copies of a bucket's images", .timeLimit(.minutes(5)))
struct CopyTests {
  private let folder: TemporaryFolder
  private let bucket: S3Bucket
  private static let count = 100_000

  init() async throws {
    folder = try TemporaryFolder()
    bucket = try await TestBucket().bucket
  }

  /// As a service has them, once the one before has ended.
  private func open() throws -> (images: S3ImageStore, spool: any ImageSpool) {
    var configuration = FileImageStore.Configuration(path: folder.path + "/copies")
    configuration.isDurable = false
    let copies = try FileImageStore(configuration)
    let images = S3ImageStore(
      bucket, copies: copies, spool: copies.spool, maxCopyBytes: 1_000_000,
      keptImage: { KeptImage(ImageName($0), bytes: Self.count) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    return (images, copies.spool)
  }

  /// What a run keeps that has ended by now.
  private func earlierRun(keeps count: Int) async throws -> [ImageDigest] {
    let (images, spool) = try open()
    var digests: [ImageDigest] = []
    for seed in 0..<count {
      let staged = try await spool.stage()
      try staged.write(imageBytes(Self.count, seed: UInt8(seed)))
      digests.append(staged.finish())
      try await images.put(staged, as: ImageName(digests[seed]))
    }
    #expect(folder.files(below: "copies").count == count)
    return digests
  }

  @Test("that an earlier run left go at the next start, but for those in use by then")
  func earlier() async throws {
    let digests = try await earlierRun(keeps: 3)
    let images = try open().images
    _ = try await images.open(digests[0])
    try await images.tidy()
    #expect(folder.files(below: "copies").count == 1)
    for digest in digests { #expect(try await images.open(digest)?.count == Self.count) }
    #expect(folder.files(below: "copies").count == 3)
  }

  @Test("that an earlier run left go, too, once another instance has removed the image")
  func removedElsewhere() async throws {
    let digest = try await earlierRun(keeps: 1)[0]
    let images = try open().images
    try await bucket.remove(S3ImageStore.key(of: ImageName(digest)))
    await images.dropCopy(of: digest)
    #expect(folder.files(below: "copies").isEmpty)
    #expect(try await images.open(digest) == nil)
  }
}
