import Images
import Jobs
import Logging
import S3
import TestSupport
import Testing

@Suite("Local copies of a bucket's images", .timeLimit(.minutes(15)))
struct S3CopyTests {
  private let folder: TemporaryFolder
  private let bucket: S3Bucket
  private static let count = 100_000

  init() async throws {
    folder = try TemporaryFolder()
    bucket = try await TestBucket().bucket
  }

  /// Opens the store as a new process does.
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

  /// Stores images in a run that has ended, and returns them.
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

  @Test("copies of an earlier run are removed at the next start, unless they were used since")
  func earlier() async throws {
    let digests = try await earlierRun(keeps: 3)
    let images = try open().images
    _ = try await images.open(digests[0])
    try await images.deleteTemporaryFiles()
    #expect(folder.files(below: "copies").count == 1)
    for digest in digests { #expect(try await images.open(digest)?.count == Self.count) }
    #expect(folder.files(below: "copies").count == 3)
  }

  @Test("a copy of an earlier run is removed after another instance has deleted the image")
  func removedElsewhere() async throws {
    let digest = try await earlierRun(keeps: 1)[0]
    let images = try open().images
    try await bucket.remove(S3ImageStore.key(of: ImageName(digest)))
    await images.deleteCopy(of: digest)
    #expect(folder.files(below: "copies").isEmpty)
    #expect(try await images.open(digest) == nil)
  }
}
