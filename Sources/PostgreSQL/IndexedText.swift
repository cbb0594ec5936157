internal import Jobs

/// Texts of clients' that are looked up by an index, which takes no long ones.
enum IndexedText {
  /// The text's bytes, or what stands for them where they are many.
  static func bytes(of text: String) -> [UInt8] {
    let bytes = Array(text.utf8)
    return bytes.count <= 512 ? bytes : [0] + Fingerprint(of: [text]).bytes
  }
}
