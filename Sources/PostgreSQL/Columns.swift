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

/// Texts of clients' that are looked up by an index, which takes no long ones.
enum IndexedText {
  /// The text's bytes, or what stands for them where they are many.
  static func bytes(of text: String) -> [UInt8] {
    let bytes = Array(text.utf8)
    return bytes.count <= 512 ? bytes : [0] + Fingerprint(of: [text]).bytes
  }
}
