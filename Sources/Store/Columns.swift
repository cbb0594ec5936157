internal import Foundation
internal import Jobs

extension Phase {
  /// What stands for it in the tables.
  var code: Int {
    switch self {
    case .queued: 0
    case .loading: 1
    case .success: 2
    case .failure: 3
    case .cancelled: 4
    }
  }

  init?(code: Int) {
    guard let phase = Phase.allCases.first(where: { $0.code == code }) else { return nil }
    self = phase
  }
}

extension JobID {
  /// Sixteen bytes that sort as the ids do.
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

extension Job {
  /// The digest and size of the bytes that the client sent, if it did.
  var capturedSource: (digest: ImageDigest, bytes: Int)? {
    guard case .captured(let digest, let bytes, _) = submission.source else { return nil }
    return (digest, bytes)
  }

  /// Whether its image is to be replaced by the regular one once there is data to spare.
  var hasLowDataImage: Bool {
    guard phase == .success, let image, image.isKept else { return false }
    return image.variant == .lowData && !submission.savesData
  }
}
