/// The project's `openapi.yaml` as a constant of the executable.
///
/// The build copies the file's bytes into the module. It is a module of its own because the bytes take long to compile.
/// `Routes` serves them at `/openapi.yaml`. There is no state and no thread.
package enum OpenAPIDocument {
  /// The bytes of the document, UTF-8.
  package static var bytes: [UInt8] { PackageResources.openapi_yaml }
}
