internal import CCodecs

/// The codec libraries that are linked.
public enum CodecLibraries {
  /// libpng's version, such as `1.6.39`.
  public static var pngVersion: String { String(cString: codecs_png_version()) }
  /// libjpeg-turbo's version, such as `2.1.5`.
  public static var jpegVersion: String { String(cString: codecs_jpeg_version()) }
}
