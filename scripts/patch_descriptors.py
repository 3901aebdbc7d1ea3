"""Rewrite a descriptor set of edition 2023 in terms of proto2, which is all that prost-build understands.

The two say the same as long as presence is explicit, enums are closed and repeated fields are packed; any other
feature is refused here, so that the generated code never quietly means something else.

Usage: patch_descriptors.py IN OUT
"""

import sys
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb

FIELD = pb.FieldDescriptorProto
UNPACKABLE = {FIELD.TYPE_STRING, FIELD.TYPE_BYTES, FIELD.TYPE_MESSAGE, FIELD.TYPE_GROUP}


def refuse_features(options: pb.MessageOptions | pb.FieldOptions | pb.EnumOptions, where: str) -> None:
    if options.HasField("features"):
        sys.exit(f"{where}: features may be set for a whole file only: {options.features}")


def patch_message(message: pb.DescriptorProto, where: str) -> None:
    where = f"{where}.{message.name}"
    refuse_features(message.options, where)
    for field in message.field:
        refuse_features(field.options, f"{where}.{field.name}")
        # Packed is the default of edition 2023, and must be said in proto2.
        if field.label == FIELD.LABEL_REPEATED and field.type not in UNPACKABLE:
            field.options.packed = True
    for enum in message.enum_type:
        refuse_features(enum.options, f"{where}.{enum.name}")
    for nested in message.nested_type:
        patch_message(nested, where)


def patch_file(file: pb.FileDescriptorProto) -> None:
    expected = pb.FeatureSet(enum_type=pb.FeatureSet.CLOSED)
    if file.edition != pb.EDITION_2023 or file.options.features != expected:
        sys.exit(f"{file.name}: expected edition 2023 with closed enums and no other feature")
    file.options.ClearField("features")
    file.ClearField("edition")
    file.syntax = "proto2"
    for enum in file.enum_type:
        refuse_features(enum.options, enum.name)
    for message in file.message_type:
        patch_message(message, file.package)


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    files = pb.FileDescriptorSet.FromString(source.read_bytes())
    for file in files.file:
        if not file.package.startswith("google."):
            patch_file(file)
    target.write_bytes(files.SerializeToString(deterministic=True))


main()
