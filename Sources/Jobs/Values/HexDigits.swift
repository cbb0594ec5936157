extension Collection<UInt8> {
  /// Two hexadecimal digits per byte, lower case.
  package var hexDigits: String {
    String(unsafeUninitializedCapacity: 2 * count) { buffer in
      for (index, byte) in enumerated() {
        buffer[2 * index] = hexDigit(UInt64(byte >> 4))
        buffer[2 * index + 1] = hexDigit(UInt64(byte & 15))
      }
      return 2 * count
    }
  }
}
