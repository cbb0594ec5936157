import Caching
import Foundation
import Jobs
import Store
import TestSupport

/// A folder that is gone once nobody holds it.
final class TemporaryFolder: Sendable {
  let path: String

  init() throws {
    // In memory where that can be had: the tests wait for thousands of syncs, which prove nothing without a power cut.
    let memory = "/dev/shm/"
    let base = FileManager.default.isWritableFile(atPath: memory) ? memory : NSTemporaryDirectory()
    path = base + "store-tests-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  /// Opens the job store in it.
  func openJobs(
    _ clock: ManualClock = ManualClock(.at(0)),
    _ change: (inout SQLiteJobStore.Configuration) -> Void = { _ in }
  ) throws -> StoreUnderTest {
    var configuration = SQLiteJobStore.Configuration(path: path + "/jobs.sqlite")
    configuration.now = { clock.now }
    configuration.uptime = { clock.now }
    change(&configuration)
    return StoreUnderTest(try SQLiteJobStore(configuration), clock)
  }

  /// Opens the job store in it.
  func openJobs(_ change: (inout SQLiteJobStore.Configuration) -> Void) throws -> StoreUnderTest {
    try openJobs(ManualClock(.at(0)), change)
  }

  /// Opens the image store in it.
  func openImages() throws -> FileImageStore {
    try FileImageStore(FileImageStore.Configuration(path: path + "/images"))
  }

  /// The paths of the regular files in a folder of it, without those that start with a dot.
  func files(below folder: String) -> [String] {
    let walk = FileManager.default.enumerator(atPath: path + "/" + folder)
    var files: [String] = []
    while let name = walk?.nextObject() as? String {
      let isFile = walk?.fileAttributes?[.type] as? FileAttributeType == .typeRegular
      if isFile, !name.hasPrefix(".") { files.append(name) }
    }
    return files.sorted()
  }
}

extension Timestamp {
  /// A moment that many milliseconds after the tests' beginning of time.
  static func at(_ milliseconds: Int64) -> Timestamp {
    Timestamp(milliseconds: 1_700_000_000_000 + milliseconds)
  }
}

extension ImageDigest {
  /// Digests that differ where the numbers do.
  static func sample(_ number: Int) -> ImageDigest {
    let bytes = (0..<32).map { UInt8(truncatingIfNeeded: number >> (8 * ($0 % 4)) &+ $0) }
    return ImageDigest(bytes: bytes)!  // thirty-two bytes
  }
}

extension StoredImage {
  /// An image of that digest.
  static func sample(_ digest: ImageDigest, bytes: Int, variant: SourceVariant = .regular)
    -> StoredImage
  {
    StoredImage(
      description: ImageDescription(format: .jpeg, width: 3, height: 2), digest: digest,
      bytes: bytes, url: nil, variant: variant, modifiedAt: .at(0))
  }
}

extension CacheEntry {
  /// An entry whose image has that digest.
  static func sample(
    _ key: Int, selector: Int = 0, _ digest: ImageDigest, bytes: Int, response: Int = 0
  ) throws -> CacheEntry {
    CacheEntry(
      id: ID(key: Fingerprint(of: ["\(key)"]), selector: Fingerprint(of: ["\(selector)"])),
      response: StoredResponse(
        to: [], fields: [Field(name: "Age", value: "\(response)")], requestTime: 0,
        responseTime: 1, assignedLifetime: nil),
      image: .sample(digest, bytes: bytes))
  }
}

extension Job {
  /// A queued job.
  static func sample(
    _ number: Int64 = 0, owner: String = "anna", priority: Priority = .normal, tags: [String] = [],
    captured: (ImageDigest, bytes: Int)? = nil, url: String? = nil, at moment: Int64? = nil,
    id: JobID? = nil
  ) -> Job {
    let url = SourceURL(url ?? "https://example.org/images/\(number).jpg")!  // a legal URL
    let source =
      captured.map { Source.captured($0.0, bytes: $0.bytes, contentType: "image/png") }
      ?? .url(url, lowData: nil)
    return Job(
      id: id ?? JobID(at: .at(moment ?? number)), owner: Owner(owner),
      submission: Submission(source: source),
      priority: priority, tags: tags, createdAt: .at(moment ?? number))
  }

  /// Succeeds with an image of that digest.
  mutating func succeed(
    with digest: ImageDigest, bytes: Int, variant: SourceVariant = .regular, at moment: Timestamp
  ) {
    let image = StoredImage.sample(digest, bytes: bytes, variant: variant)
    succeed(with: image, cache: nil, at: moment, keptFor: .seconds(3_600))
  }
}

/// A store of files with its spool, as tests use both.
extension FileImageStore {
  func stage() async throws(StoreError) -> any StagedImage { try await spool.stage() }

  func publish(_ staged: any StagedImage) async throws(StoreError) {
    try await put(staged, as: ImageName(staged.finish()))
  }

  func removeUnfinished() async throws(StoreError) -> Int { try await spool.removeUnfinished() }

  func take(_ key: Fingerprint) async throws(StoreError) -> KeptTransfer? {
    try await spool.take(key)
  }

  func drop(_ key: Fingerprint) async throws(StoreError) { try await spool.drop(key) }

  var keptBytes: Int { spool.keptBytes }
}

extension Job {
  /// What a worker's report of that progress does, while loading.
  mutating func report(_ progress: Jobs.Progress) {
    var report = ProgressReport(of: self)
    report.progress = progress
    take(report)
  }
}
