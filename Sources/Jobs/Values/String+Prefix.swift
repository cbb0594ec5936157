extension String {
  /// Returns the first `count` bytes, with U+FFFD in place of an incomplete character. Texts from outside are
  /// cut by bytes, because a single `Character` can be megabytes long.
  package func prefix(bytes count: Int) -> String {
    String(decoding: utf8.prefix(count), as: UTF8.self)
  }
}
