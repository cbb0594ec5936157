internal import Foundation
internal import Jobs

/// What lies beside the bytes of an unfinished transfer, as JSON, so that they can be continued after the service's end.
struct PartialRecord: Codable, Sendable {
  /// The request that the bytes are kept for.
  var key: Fingerprint
  /// What they are a part of.
  var response: PartialResponse
  /// The run of the system that they were written in: within one, what a process wrote outlives it, synced or not.
  var boot: String?
  /// What was synced before the bytes were set aside; nil while the transfer is under way for the first time.
  var whole: Prefix?

  /// So many first bytes, and how to know them again.
  struct Prefix: Codable, Sendable {
    var count: Int
    var digest: ImageDigest
  }

  func encoded() -> [UInt8] {
    // Nothing in it can fail to be written as JSON.
    guard let data = try? JSONEncoder().encode(self) else { return [] }
    return Array(data)
  }

  /// Nil for what isn't a record's text, whole.
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

  /// How many of a file's bytes may be trusted, if its first ones are what ``whole`` says.
  ///
  /// - Parameter boot: the present run of the system; nil when it can't be told.
  func trusted(of size: Int, boot: String?) -> Int {
    let isSameRun = boot != nil && boot == self.boot
    guard let whole else { return isSameRun ? size : 0 }
    guard size >= whole.count else { return 0 }
    return isSameRun ? size : whole.count
  }
}
