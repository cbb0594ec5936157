extension String {
<<<<<<< HEAD
  /// Its first bytes, with U+FFFD for a character that is cut through. A single `Character` may have megabytes: what others
=======
  /// Its first bytes, with U+FFFD for a character that is cut through. One `Character` may have megabytes: what others
>>>>>>> b7791faeab95b4b5011f43f04e36148a57c10066
  /// worded is never cut by those.
  package func prefix(bytes count: Int) -> String {
    String(decoding: utf8.prefix(count), as: UTF8.self)
  }
}
