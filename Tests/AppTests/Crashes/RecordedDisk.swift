import Foundation
import TestSupport
import Testing

/// A service's folder whose changes are recorded by Tests/DiskShim/disk-shim.c, which is loaded into the
/// service.
///
/// A test can make the disk slow, failing or read-only, move the clock, or cut the power.
final class RecordedDisk: Sendable {
  /// The service's folder.
  let folder: String
  private let own: String
  private let control: Int32

  /// Controls of the shim, in the order in which it reads them.
  enum Control: Int {
    case isFrozen, isChanging, areSyncsHeld, failingSyncs, clockOffset, isReadOnly
  }

  init() async throws {
    folder = try RunningService.makeFolder()
    own = try RunningService.makeFolder()
    let source = Readme.root + "Tests/DiskShim/disk-shim.c"
    let said = try await Shell.run(
      "cc -shared -fPIC -O2 -Wall -Wextra -Werror -o shim.so '\(source)' -ldl -lpthread 2>&1",
      in: own)
    try #require(said == "")
    try Data().write(to: URL(filePath: own + "/record"))
    try Data(count: 4_096).write(to: URL(filePath: own + "/control"))
    control = open(own + "/control", O_RDWR | O_CLOEXEC)
    try #require(control >= 0)
  }

  deinit { close(control) }

  func remove() {
    for path in [folder, own] { try? FileManager.default.removeItem(atPath: path) }
  }

  /// The environment variables that load the shim.
  var settings: [String: String] {
    ["LD_PRELOAD": own + "/shim.so", "DISK_SHIM": own, "DISK_SHIM_ROOT": folder]
  }

  subscript(_ member: Control) -> Int {
    get {
      var value = 0
      pread(control, &value, 8, off_t(member.rawValue * 8))
      return value
    }
    set {
      var value = newValue
      pwrite(control, &value, 8, off_t(member.rawValue * 8))
    }
  }

  /// The size of the record so far.
  var moment: Int {
    var status = stat()
    return stat(own + "/record", &status) == 0 ? Int(status.st_size) : 0
  }

  /// Cuts the power of a service at a random moment.
  func cutPower(of service: RunningService) async throws {
    self[.isFrozen] = 1
    // Changes in progress are still recorded.
    try await eventually { self[.isChanging] == 0 }
    try await service.kill()
    self[.isFrozen] = 0
  }

  /// Returns all recorded changes.
  func changes() throws -> [DiskChange] {
    try DiskChange.all(in: Data(contentsOf: URL(filePath: own + "/record")))
  }

  /// Returns a model of the empty folder.
  func emptyDisk() throws -> DiskModel {
    var status = stat()
    try #require(stat(folder, &status) == 0)
    return DiskModel(root: UInt64(status.st_ino))
  }
}

/// One recorded call.
struct DiskChange {
  enum Kind: UInt32 {
    case name = 1
    case unname, rename, write, size, sync, synced, syncFailed
  }

  var kind: Kind
  /// The inodes of the changed object and of another one that is involved.
  var file, other: UInt64
  var at: Int
  var bytes: [UInt8]
  /// The size of the record after this change.
  var moment: Int

  /// The names, each terminated by a zero.
  var names: [String] {
    bytes.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
  }

  static func all(in record: Data) throws -> [DiskChange] {
    try record.withUnsafeBytes { record in
      var changes: [DiskChange] = []
      var at = 0
      while at < record.count {
        try #require(at + 32 <= record.count)
        func word<Word: FixedWidthInteger>(_ offset: Int, _: Word.Type) -> Word {
          record.loadUnaligned(fromByteOffset: at + offset, as: Word.self)
        }
        let count = Int(word(4, UInt32.self))
        let end = at + 32 + count
        try #require(end <= record.count)
        changes.append(
          DiskChange(
            kind: try #require(Kind(rawValue: word(0, UInt32.self))), file: word(8, UInt64.self),
            other: word(16, UInt64.self), at: Int(word(24, Int64.self)),
            bytes: [UInt8](record[(at + 32)..<end]), moment: end))
        at = end
      }
      return changes
    }
  }
}
