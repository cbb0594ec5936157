internal import CCodecs

/// The versions of the linked codec libraries.
public enum CodecLibraries {
  /// libpng's version, such as `1.6.39`.
  public static var pngVersion: String { String(cString: codecs_png_version()) }
  /// libjpeg-turbo's version, such as `2.1.5`.
  public static var jpegVersion: String { String(cString: codecs_jpeg_version()) }
  /// Little CMS's version, such as `2.14`.
  public static var lcmsVersion: String { String(cString: codecs_lcms_version()) }
  /// libwebp's version, such as `1.2.4`.
  public static var webpVersion: String { String(cString: codecs_webp_version()) }
  /// libde265's version, such as `1.0.11`.
  public static var de265Version: String { String(cString: codecs_de265_version()) }
  /// libjxl's version, such as `0.7.0`.
  public static var jxlVersion: String { String(cString: codecs_jxl_version()) }
  /// libavif's version and its AV1 codecs', such as `0.11.1 (dav1d [dec]:1.0.0, aom [enc/dec]:3.6.0)`.
  public static var avifVersion: String { String(cString: codecs_avif_version()) }
}
