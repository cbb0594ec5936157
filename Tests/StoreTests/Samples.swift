import Caching
import Foundation
import Images
import Jobs
import SQL
import SQLite
import TestSupport

/// A folder that is deleted together with this object.
final class TemporaryFolder: Sendable {
  let path: String

  init() throws {
    // In memory if possible: the tests sync thousands of times, and without a power failure this
    // proves nothing.
    let memory = "/dev/shm/"
    let base = FileManager.default.isWritableFile(atPath: memory) ? memory : NSTemporaryDirectory()
    path = base + "store-tests-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  /// Opens the job store in this folder.
  ///
  /// A long timeout makes each transaction complete its optional work, as in the other stores, even on a busy machine.
  func openJobs(
    _ clock: ManualClock = ManualClock(.at(0)),
    _ change: (inout SQLJobStore.Configuration) -> Void = { _ in }
  ) throws -> StoreUnderTest {
    var database = SQLiteDatabase.Configuration(path: path + "/jobs.sqlite")
    (database.clock, database.leaseClock) = ({ clock.now }, { clock.now })
    let counted = try CountedSQLite(database)
    var configuration = SQLJobStore.Configuration(counted)
    configuration.timeout = .seconds(600)
    change(&configuration)
    return StoreUnderTest(try SQLJobStore(configuration), clock, counted)
  }

  /// Opens the image store in this folder.
  func openImages() throws -> FileImageStore {
    try FileImageStore(FileImageStore.Configuration(path: path + "/images"))
  }

  /// Returns the paths of the regular files below a folder, without names that start with a dot.
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
  /// The time this many milliseconds after the tests' start time.
  static func at(_ milliseconds: Int64) -> Timestamp {
    Timestamp(milliseconds: 1_700_000_000_000 + milliseconds)
  }
}

extension ImageDigest {
  /// Returns a different digest for each number.
  static func sample(_ number: Int) -> ImageDigest {
    let bytes = (0..<32).map { UInt8(truncatingIfNeeded: number >> (8 * ($0 % 4)) &+ $0) }
    return ImageDigest(bytes: bytes)!  // thirty-two bytes
  }
}

extension StoredImage {
  /// Creates an image with this digest.
  static func sample(_ digest: ImageDigest, bytes: Int, variant: SourceVariant = .regular)
    -> StoredImage
  {
    StoredImage(
      description: ImageDescription(format: .jpeg, width: 3, height: 2), digest: digest,
      bytes: bytes, url: nil, variant: variant, modifiedAt: .at(0))
  }
}

extension CacheEntry {
  /// Creates an entry with an image of this digest.
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
  /// Creates a queued job.
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

  /// Succeeds with an image of this digest.
  mutating func succeed(
    with digest: ImageDigest, bytes: Int, variant: SourceVariant = .regular, at moment: Timestamp
  ) {
    let image = StoredImage.sample(digest, bytes: bytes, variant: variant)
    succeed(with: image, cache: nil, at: moment, keptFor: .seconds(3_600))
  }
}

/// Shortcuts for a file store and its spool.
extension FileImageStore {
  func stage() async throws(StoreError) -> any StagedImage { try await spool.stage() }

  func publish(_ staged: any StagedImage) async throws(StoreError) {
    try await put(staged, as: ImageName(staged.finish()))
  }

  func removeUnfinished() async throws(StoreError) -> Int { try await spool.removeUnfinished() }

  func takePartial(_ key: Fingerprint) async throws(StoreError) -> PartialTransfer? {
    try await spool.takePartial(key)
  }

  func deletePartial(_ key: Fingerprint) async throws(StoreError) {
    try await spool.deletePartial(key)
  }

  var partialBytes: Int { spool.partialBytes }
}

extension Job {
  /// Applies a worker's progress report to a loading job.
  mutating func report(_ progress: Jobs.Progress) {
    var report = ProgressReport(of: self)
    report.progress = progress
    applyLastReport(report)
  }
}
