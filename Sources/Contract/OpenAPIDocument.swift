/// The project's `openapi.yaml`, within the executable. A module of its own, since its bytes take long to compile.
public enum OpenAPIDocument {
  /// The document as it is served.
  public static var bytes: [UInt8] { PackageResources.openapi_yaml }
}
