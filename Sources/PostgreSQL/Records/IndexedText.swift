internal import Jobs

/// Client texts that are searched by an index. An index key has a maximum length.
enum IndexedText {
  /// Returns the text's bytes, or a hash if they are more than 512.
  static func bytes(of text: String) -> [UInt8] {
    let bytes = Array(text.utf8)
    return bytes.count <= 512 ? bytes : [0] + Fingerprint(of: [text]).bytes
  }
}
