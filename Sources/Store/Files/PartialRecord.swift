internal import Foundation
internal import Jobs

/// The record of a partial transfer, stored as JSON next to its bytes, so that a later run can
/// resume it.
struct PartialRecord: Codable, Sendable {
  /// The request that the bytes belong to.
  var key: Fingerprint
  /// The response that the bytes are a part of.
  var response: PartialResponse
  /// The boot id when the bytes were written. Within the same boot, written bytes survive the end
  /// of the process even without a sync.
  var boot: String?
  /// The bytes synced before the transfer was stored; `nil` while it is active for the first time.
  var whole: Prefix?

  /// A number of first bytes and their digest.
  struct Prefix: Codable, Sendable {
    var count: Int
    var digest: ImageDigest
  }

  func encoded() -> [UInt8] {
    // Encoding can't fail: every member has a JSON form.
    guard let data = try? JSONEncoder().encode(self) else { return [] }
    return Array(data)
  }

  /// Returns `nil` if the text is not a complete record.
  init?(encoded bytes: [UInt8]) {
    guard let record = try? JSONDecoder().decode(Self.self, from: Data(bytes)),
      record.key.bytes.count == 32
    else { return nil }
    self = record
  }

  init(key: Fingerprint, response: PartialResponse, boot: String?, whole: Prefix? = nil) {
    self.key = key
    self.response = response
    self.boot = boot
    self.whole = whole
  }

  /// Returns how many of a file's bytes can be trusted, provided that its first bytes match
  /// ``whole``.
  ///
  /// - Parameter boot: the id of the current boot; `nil` if unknown.
  func trusted(of size: Int, boot: String?) -> Int {
    let isSameRun = boot != nil && boot == self.boot
    guard let whole else { return isSameRun ? size : 0 }
    guard size >= whole.count else { return 0 }
    return isSameRun ? size : whole.count
  }
}
