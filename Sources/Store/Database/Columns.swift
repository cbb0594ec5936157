internal import Foundation
internal import Jobs

extension JobID {
  /// 16 bytes with the same order as the ids.
  var data: Data {
    withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Data($0) }
  }

  init?(data: Data) {
    guard data.count == 16 else { return nil }
    let words = data.withUnsafeBytes {
      ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }
    self.init(high: UInt64(bigEndian: words.0), low: UInt64(bigEndian: words.1))
  }
}

extension ImageDigest {
  var data: Data { Data(bytes) }
}

extension Fingerprint {
  var data: Data { Data(bytes) }
}

extension Owner {
  var data: Data { Data(name.utf8) }
}
