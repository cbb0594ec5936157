import Digests
import Foundation
import Jobs
import TestSupport
import Testing

@testable import Images

/// An image store in a temporary folder, with simulated crashes.
final class PartialFixture {
  let folder: TemporaryFolder
  private(set) var store: FileImageStore
  private var path: String
  private var crashes = 0

  private let maxUnrecordedBytes: Int

  /// - Parameter maxUnrecordedBytes: by default, the record is written with the first byte.
  init(maxBytes: Int = 10_000_000, maxUnrecordedBytes: Int = 1) throws {
    folder = try TemporaryFolder()
    path = folder.path + "/images"
    self.maxUnrecordedBytes = maxUnrecordedBytes
    store = try Self.open(
      path, bootID: "first", maxBytes: maxBytes, maxUnrecordedBytes, in: folder)
  }

  private static func open(
    _ path: String, bootID: String?, maxBytes: Int, _ maxUnrecordedBytes: Int,
    in folder: TemporaryFolder
  ) throws -> FileImageStore {
    var configuration = FileImageStore.Configuration(path: path)
    configuration.maxPartialBytes = maxBytes
    configuration.maxUnrecordedBytes = maxUnrecordedBytes
    configuration.bootIDPath = folder.path + "/boot-" + (bootID ?? "none")
    if let bootID {
      try Data((bootID + "\n").utf8).write(to: URL(fileURLWithPath: configuration.bootIDPath))
    }
    return try FileImageStore(configuration)
  }

  /// Continues with a copy of the current files, as after a kill of the process.
  /// - Parameters:
  ///   - bootID: the boot id at the next start; `nil` if it is unknown.
  ///   - harm: changes the files before the next start.
  func crash(
    bootID: String? = "first", maxBytes: Int = 10_000_000, harm: (String) throws -> Void = { _ in }
  ) throws {
    crashes += 1
    let copy = folder.path + "/after-\(crashes)"
    #expect(try ChildProcess.run(["/bin/cp", "-a", path, copy]).status == 0)
    try harm(copy)
    path = copy
    store = try Self.open(
      path, bootID: bootID, maxBytes: maxBytes, maxUnrecordedBytes, in: folder)
  }

  /// Returns the files in a folder of the store.
  func files(_ name: String) -> [String] {
    folder.files(below: String(path.dropFirst(folder.path.count + 1)) + "/" + name)
  }

  /// Makes the stored transfers look a minute older, because file times are too coarse for a short
  /// test.
  func age() throws {
    for name in files("partials") {
      try FileManager.default.setAttributes(
        [.modificationDate: Date(timeIntervalSinceNow: -60)],
        ofItemAtPath: path + "/partials/" + name)
    }
  }

  /// Starts a transfer and writes these bytes.
  func stage(
    _ key: Fingerprint, _ bytes: [UInt8], _ response: PartialResponse = .sample()
  ) async throws -> any StagedImage {
    let staged = try await store.stage()
    staged.identify(key, response)
    try staged.write(bytes)
    return staged
  }

  /// Stores a partial transfer with these bytes.
  func setAside(
    _ key: Fingerprint, _ bytes: [UInt8], _ response: PartialResponse = .sample()
  ) async throws {
    try await stage(key, bytes, response).keepPartial()
  }

  /// Opens the stored transfer, reads its bytes and stores it again.
  func kept(_ key: Fingerprint) async throws -> [UInt8]? {
    guard let kept = try await store.takePartial(key) else { return nil }
    let bytes = kept.bytes.read(at: 0, count: kept.count + 1)
    try await kept.staged.keepPartial()
    return bytes
  }

  /// Waits until no file of a partial transfer is left.
  func isClean() async throws -> Bool {
    let deadline = ContinuousClock.now + patience
    while !(files("incoming") + files("partials")).isEmpty {
      guard ContinuousClock.now < deadline else { return false }
      try await Task.sleep(for: .milliseconds(2))
    }
    return true
  }
}

extension PartialResponse {
  static func sample(_ total: Int? = nil) -> PartialResponse {
    PartialResponse(
      url: SourceURL("https://example.org/x")!,  // a legal URL
      validator: "\"v1\"", total: total)
  }
}

extension Fingerprint {
  static func sample(_ name: String) -> Fingerprint { Fingerprint(of: [name]) }
}

/// Returns bytes that differ by position and by seed.
func imageBytes(_ count: Int, seed: UInt8 = 1) -> [UInt8] {
  // Doubles the array, because a loop over single bytes is slow without optimization.
  var bytes = (0..<min(count, 251)).map { UInt8($0) &* 31 ^ seed }
  while bytes.count < count {
    bytes.append(UInt8(truncatingIfNeeded: bytes.count >> 8))
    bytes.append(contentsOf: bytes.prefix(count - bytes.count))
  }
  return bytes
}

func sha256(_ bytes: [UInt8]) -> ImageDigest? { ImageDigest(bytes: SHA256.hash(data: bytes)) }
